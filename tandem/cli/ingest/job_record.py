"""Keeps on the caller's disk what an index has of a source, so that a job can resume."""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Self

# One process alone has the file, so that no memory is shared, which NFS lacks.
_TABLES: Final = """
PRAGMA locking_mode=EXCLUSIVE;
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS item(
    item_id TEXT PRIMARY KEY, record_id TEXT, state TEXT, size INTEGER, digest BLOB,
    attributes TEXT, status TEXT, why TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept(name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS look(digest BLOB PRIMARY KEY, hashes BLOB) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS of_record ON item(record_id);
CREATE INDEX IF NOT EXISTS of_kept ON item(why) WHERE status='duplicate';
CREATE INDEX IF NOT EXISTS of_content ON item(size, digest);
"""


class Status(StrEnum):
    """Says what the index has of an item."""

    SENT = "sent"
    """Perhaps this content: the answer is missing. It is sent again."""
    STORED = "stored"
    REFUSED = "refused"
    """Perhaps an earlier content: the server refused this one."""
    DUPLICATE = "duplicate"
    """Nothing: the item that `why` names has the picture, by the digest in `attributes`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One item of the source, as it was last sent."""

    item_id: str
    record_id: str
    """The record that it is of; empty if the record no longer has it."""
    state: str
    """Of the record's file before it was read, its path last; empty if it proves nothing."""
    size: int
    digest: bytes
    """Of the content; empty if it was not read."""
    attributes: str
    """As JSON."""
    status: Status = Status.SENT
    why: str = ""
    """The reason of a refusal, and its message."""

    @property
    def file(self) -> str:
        """What the state says of the file, its path last; empty if it says nothing."""
        return self.state.partition(" ")[2]

    def is_stored_as(self, known: "Row | None") -> bool:
        """Returns whether the index has the content that the known row says."""
        return known is not None and (known.status, known.digest) == (Status.STORED, self.digest)


_values = attrgetter(*(each.name for each in fields(Row)))


class JobRecord:
    """The rows of one source in one index. Use it in a with statement, from any thread."""

    def __init__(self, path: Path | None) -> None:
        """Opens or makes the file; None keeps the rows in memory alone.

        Raises ValueError if another process has it open or it is another file, and OSError.
        """
        self.path = path
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._named_errors():
            self._database = sqlite3.connect(
                path or ":memory:", 0.0, isolation_level=None, check_same_thread=False
            )
            self._database.executescript(_TABLES)

    def counts(self) -> tuple[int, int]:
        """Returns how many rows there are, and how many of them are stored."""
        [(count, stored)] = self._all("SELECT count(*), sum(status='stored') FROM item")
        return count, stored or 0

    def rows(self, record_id: str) -> dict[str, Row]:
        """Returns a record's rows by item id."""
        return {row.item_id: row for row in self.every("record_id=?", record_id)}

    def row(self, item_id: str) -> Row | None:
        """Returns an item's row, if it has one."""
        return next(self.every("item_id=?", item_id), None)

    def holders(self, size: int, digest: bytes) -> list[Row]:
        """Returns the items that the index has with this content."""
        return list(self.every("size=? AND digest=? AND status='stored'", size, digest))

    def has_size(self, size: int) -> bool:
        """Returns whether the index has an item whose content has so many bytes."""
        return any(self.every("size=? AND status='stored' LIMIT 1", size))

    def every(self, where: str = "true", *values: object) -> Iterator[Row]:
        """Yields the rows of which that is true."""
        for found in self._all(f"SELECT * FROM item WHERE {where}", *values):
            yield replace(Row(*found), status=Status(found[6]))

    def kept(self, name: str) -> str:
        """Returns what is kept under a name; an empty text if nothing is."""
        found = self._all("SELECT value FROM kept WHERE name=?", name)
        return str(found[0][0]) if found else ""

    def keep(self, name: str, value: str) -> None:
        """Keeps a text under a name."""
        self._many("REPLACE INTO kept VALUES(?,?)", [(name, value)])

    def looks(self) -> Iterable[tuple[str, bytes, bytes | None]]:
        """Returns the stored pictures: id, digest, and what they look like if that is known."""
        return self._all(
            "SELECT item_id, digest, hashes FROM item LEFT JOIN look USING(digest) "
            "WHERE status='stored' AND item_id=record_id"
        )

    def keep_look(self, digest: bytes, hashes: bytes) -> None:
        """Keeps what a content looks like."""
        self._many("REPLACE INTO look VALUES(?,?)", [(digest, hashes)])

    def free_duplicates(self, *, everything: bool = False) -> bool:
        """Has duplicates be read again of what is no longer stored so; returns whether one is."""
        freed = self._all(
            "UPDATE item SET state='' WHERE status='duplicate' AND (? OR NOT EXISTS"
            "(SELECT 1 FROM item AS kept WHERE kept.item_id=item.why AND kept.status='stored' "
            "AND lower(hex(kept.digest))=item.attributes)) RETURNING 1",
            everything,
        )
        return bool(freed)

    def write(self, rows: Iterable[Row]) -> None:
        """Writes rows, in place of those of the same items, in one transaction."""
        self._many("REPLACE INTO item VALUES(?,?,?,?,?,?,?,?)", map(_values, rows))

    def answer(self, answers: Iterable[tuple[Status, str, str]]) -> None:
        """Notes outcomes: what became of it, why, and the item's id."""
        self._many("UPDATE item SET status=?, why=? WHERE item_id=?", answers)

    def forget(self, item_ids: Iterable[str]) -> None:
        """Removes rows."""
        self._many("DELETE FROM item WHERE item_id=?", ((each,) for each in item_ids))

    def compare(self, stored_ids: Iterable[str]) -> tuple[int, set[str]]:
        """Compares with the ids of the index.

        Returns how many stored items are missing there, which are to be sent again, and the ids
        that no row has.
        """
        others = set(stored_ids)
        lost = [
            row for row in self.every() if row.status is Status.STORED and row.item_id not in others
        ]
        self.answer((Status.SENT, "", row.item_id) for row in lost)
        return len(lost), others.difference(row.item_id for row in self.every())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._database.close()

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, self._named_errors():
            return self._database.execute(query, values).fetchall()

    def _many(self, query: str, values: Iterable[tuple[object, ...]]) -> None:
        if not (values := list(values)):
            return
        with self._lock, self._named_errors(), self._database:
            self._database.execute("BEGIN")
            self._database.executemany(query, values)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                why = (
                    "another process works with it; wait for its end, or name another file by --job"
                )
                raise ValueError(f"{self.path}: {why}") from None
            kind = OSError if isinstance(error, sqlite3.OperationalError) else ValueError
            raise kind(f"{self.path}: {error}") from error


def job_path(address: str, index_id: str, source: str) -> Path:
    """Returns where the record of a source in an index of a server is unless it is named."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    key = sha256("\0".join((address, index_id, source)).encode("utf-8", "surrogateescape"))
    return folder / "tandem/jobs" / f"{index_id}-{key.hexdigest()[:16]}.sqlite"
