"""Keeps on the caller's disk what an index has of a source, so that a job can resume."""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

_TABLES: Final = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS item(
    item_id TEXT PRIMARY KEY, record_id TEXT, state TEXT, size INTEGER, digest BLOB,
    attributes TEXT, status TEXT, why TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS of_record ON item(record_id);
CREATE INDEX IF NOT EXISTS of_content ON item(size, digest);
"""


class JobBusy(ValueError):
    """Another process works with the record."""


class Status(StrEnum):
    """Says what the index has of an item."""

    SENT = "sent"
    """Perhaps this content: the answer is missing. It is sent again."""
    STORED = "stored"
    REFUSED = "refused"
    """Perhaps an earlier content: the server refused this one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One item of the source, as it was last sent."""

    item_id: str
    record_id: str
    """The record that it is of; empty if the record no longer has it."""
    state: str
    """Of the record's files before they were read; empty if it proves nothing."""
    size: int
    """Bytes of the content."""
    digest: bytes
    """Of the content."""
    attributes: str
    """As JSON."""
    status: Status = Status.SENT
    why: str = ""
    """The reason of a refusal, and its message."""


class JobRecord:
    """The rows of one source in one index. Use it in a with statement, from any thread."""

    def __init__(self, path: Path | None) -> None:
        """Opens or makes the file; None keeps the rows in memory alone.

        Raises JobBusy if another process has it open, and OSError.
        """
        self.path = path
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._named_errors():
            self._database = sqlite3.connect(
                path or ":memory:", 0.0, isolation_level=None, check_same_thread=False
            )
            # One process alone has the file, so that no memory is shared, which NFS lacks.
            self._database.executescript(f"PRAGMA locking_mode=EXCLUSIVE; {_TABLES}")

    def counts(self) -> tuple[int, int]:
        """Returns how many rows there are, and how many of them are stored."""
        [(count, stored)] = self._all("SELECT count(*), sum(status='stored') FROM item")
        return count, stored or 0

    def rows(self, record_id: str) -> dict[str, Row]:
        """Returns a record's rows by item id."""
        found = self._all("SELECT * FROM item WHERE record_id=?", record_id)
        return {row.item_id: row for row in map(_row, found)}

    def every(self, status: Status | None = None) -> Iterator[Row]:
        """Yields all rows in byte order of their ids."""
        last = ""
        chosen = "" if status is None else f"AND status='{status}'"
        while found := self._all(
            f"SELECT * FROM item WHERE item_id>? {chosen} ORDER BY item_id LIMIT 1000", last
        ):
            yield from map(_row, found)
            last = found[-1][0]

    def holders(self, size: int, digest: bytes | None = None) -> list[str]:
        """Returns ids of items that the index has with a content of that size, or that content."""
        chosen = (size,) if digest is None else (size, digest)
        where = "size=?" if digest is None else "size=? AND digest=?"
        found = self._all(f"SELECT item_id FROM item WHERE {where} AND status='stored'", *chosen)
        return [item_id for (item_id,) in found]

    def write(self, rows: Iterable[Row]) -> None:
        """Writes rows, in place of those of the same items, in one transaction."""
        self._many("REPLACE INTO item VALUES(?,?,?,?,?,?,?,?)", map(astuple, rows))

    def answer(self, answers: Iterable[tuple[str, Status, str]]) -> None:
        """Notes the outcomes of sent items, with the reasons of refusals."""
        turned = ((status, why, item_id) for item_id, status, why in answers)
        self._many("UPDATE item SET status=?, why=? WHERE item_id=?", turned)

    def detach(self, item_ids: Iterable[str]) -> None:
        """Notes that a record no longer has these items."""
        named = ((each,) for each in item_ids)
        self._many("UPDATE item SET record_id='' WHERE item_id=?", named)

    def forget(self, item_ids: Iterable[str]) -> None:
        """Removes rows."""
        self._many("DELETE FROM item WHERE item_id=?", ((each,) for each in item_ids))

    def compare(self, stored_ids: Iterable[str]) -> tuple[int, list[str]]:
        """Compares with the ids of the index, in byte order.

        Returns how many stored items are missing there, which are to be sent again, and the ids
        that no row has.
        """
        lost: list[tuple[str, Status, str]] = []
        others: list[str] = []
        rows = self.every()
        row = next(rows, None)
        for item_id in stored_ids:
            while row is not None and row.item_id.encode() < item_id.encode():
                lost += _lost(row)
                row = next(rows, None)
            if row is not None and row.item_id == item_id:
                row = next(rows, None)
            else:
                others.append(item_id)
        while row is not None:
            lost += _lost(row)
            row = next(rows, None)
        self.answer(lost)
        return len(lost), others

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._database.close()

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, self._named_errors():
            return self._database.execute(query, values).fetchall()

    def _many(self, query: str, values: Iterable[tuple[object, ...]]) -> None:
        with self._lock, self._named_errors(), self._database:
            self._database.execute("BEGIN")
            self._database.executemany(query, values)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                raise JobBusy(
                    f"another process works with {self.path}; wait for its end, or give another "
                    "file by --job"
                ) from None
            kind = OSError if isinstance(error, sqlite3.OperationalError) else ValueError
            raise kind(f"{self.path}: {error}") from error


def job_path(address: str, index_id: str, source: str) -> Path:
    """Returns where the record of a source in an index of a server lies unless it is named."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    key = sha256("\0".join((address, index_id, source)).encode("utf-8", "surrogateescape"))
    return folder / "tandem/jobs" / f"{index_id}-{key.hexdigest()[:16]}.sqlite"


def _row(values: tuple[Any, ...]) -> Row:
    return replace(Row(*values), status=Status(values[6]))


def _lost(row: Row) -> list[tuple[str, Status, str]]:
    return [(row.item_id, Status.SENT, "")] if row.status is Status.STORED else []
