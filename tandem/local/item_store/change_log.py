"""Reads and writes the change log: the newest million changes of a shard, in order."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import lmdb

from tandem.errors import ItemCorrupt
from tandem.local.item_store.checksum import ChecksumMismatch, unseal
from tandem.local.item_store.files import StoreFiles, seal_json
from tandem.stages.changes import ItemChange

KEPT_CHANGE_COUNT = 1_000_000

Operation = Literal["upsert", "delete", "drop"]

_SEQUENCE_KEY = "sequence"
# Of one transaction, so that a reader of many holds no page back for long.
_READ_COUNT = 512


@dataclass(frozen=True, slots=True)
class Change(ItemChange):
    """Describes a change as the log keeps it."""

    operation: Operation


class ChangeLog:
    """Numbers the changes of one store, and keeps the newest of them."""

    def __init__(self, files: StoreFiles, kept_count: int = KEPT_CHANGE_COUNT) -> None:
        self._files = files
        self._kept_count = kept_count

    def sequence(self, txn: lmdb.Transaction) -> int:
        """Returns the number of changes so far, which is where the log stands."""
        return int(self._files.get_meta(txn, _SEQUENCE_KEY) or 0)

    def first(self, txn: lmdb.Transaction) -> int | None:
        """Returns the number of the oldest change that is kept, None where there is none."""
        with txn.cursor(self._files.log) as cursor:
            return int.from_bytes(cursor.key()) if cursor.first() else None

    def has_since(self, txn: lmdb.Transaction, sequence: int) -> bool:
        """Returns whether the store reached the sequence, and keeps every change after it."""
        newest = self.sequence(txn)
        return (self.first(txn) or newest + 1) - 1 <= sequence <= newest

    def since(self, sequence: int) -> Iterator[Change]:
        """Yields the changes after the sequence, oldest first.

        Raises ItemCorrupt where one is missing before a later one, or fails its checksum.
        """
        while changes := self._read(sequence + 1):
            yield from changes
            sequence += len(changes)

    def append(self, txn: lmdb.Transaction, change: Change) -> None:
        """Appends the newest change and drops one too many; `stand_at` must follow."""
        key = _key(change.sequence)
        stored = [change.operation, change.index_id, change.item_id]
        txn.put(key, seal_json(key, stored), db=self._files.log, append=True)
        if change.sequence > self._kept_count:
            txn.delete(_key(change.sequence - self._kept_count), db=self._files.log)

    def stand_at(self, txn: lmdb.Transaction, sequence: int) -> None:
        """Notes the number of the newest change."""
        self._files.put_meta(txn, _SEQUENCE_KEY, sequence)

    def _read(self, start: int) -> list[Change]:
        changes: list[Change] = []
        with self._files.env.read() as txn, txn.cursor(self._files.log) as cursor:
            found = cursor.set_range(_key(start))
            while found and len(changes) < _READ_COUNT:
                change = cursor_change(cursor)
                if change.sequence != (expected := start + len(changes)):
                    raise ItemCorrupt(
                        item_id=f"(change {expected})", why=f"the next is {change.sequence}"
                    )
                changes.append(change)
                found = cursor.next()
        return changes


def read_change(txn: lmdb.Transaction, log: Any, sequence: int) -> Change | None:  # noqa: ANN401
    """Returns one change, None where it is no longer kept; raises ItemCorrupt."""
    key = _key(sequence)
    value = txn.get(key, db=log)
    return None if value is None else _change(key, value)


def cursor_change(cursor: lmdb.Cursor) -> Change:
    """Returns the change at the cursor; raises ItemCorrupt."""
    return _change(bytes(cursor.key()), cursor.value())


def _change(key: bytes, value: bytes | memoryview) -> Change:
    sequence = int.from_bytes(key)
    try:
        operation, index_id, item_id = json.loads(bytes(unseal(key, value)))
    except (ChecksumMismatch, ValueError) as error:
        raise ItemCorrupt(item_id=f"(change {sequence})", why=str(error)) from error
    return Change(sequence, index_id, item_id, operation)


def _key(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big")
