"""Reads and writes the change log: the newest million changes of a shard, in order."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import lmdb

from tandem.errors import ItemCorrupt
from tandem.local.item_store.checksum import ChecksumMismatch, unseal
from tandem.local.item_store.files import seal_json
from tandem.stages.changes import ItemChange

KEPT_CHANGE_COUNT = 1_000_000

Operation = Literal["upsert", "delete", "drop"]


@dataclass(frozen=True, slots=True)
class Change(ItemChange):
    """Describes a change as the log keeps it."""

    operation: Operation


def append_change(txn: lmdb.Transaction, log: Any, change: Change, kept_count: int) -> None:  # noqa: ANN401
    """Appends the newest change to the database `log` and drops one too many."""
    key = _key(change.sequence)
    stored = [change.operation, change.index_id, change.item_id]
    txn.put(key, seal_json(key, stored), db=log, append=True)
    if change.sequence > kept_count:
        txn.delete(_key(change.sequence - kept_count), db=log)


def first_sequence(txn: lmdb.Transaction, log: Any) -> int | None:  # noqa: ANN401
    """Returns the number of the oldest change that is kept, None where there is none."""
    with txn.cursor(log) as cursor:
        return int.from_bytes(cursor.key()) if cursor.first() else None


def read_changes(txn: lmdb.Transaction, log: Any, start: int, count: int) -> Sequence[Change]:  # noqa: ANN401
    """Returns up to `count` changes from number `start` on.

    Raises ItemCorrupt where one is missing before a later one, or fails its checksum.
    """
    changes: list[Change] = []
    with txn.cursor(log) as cursor:
        found = cursor.set_range(_key(start))
        while found and len(changes) < count:
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
