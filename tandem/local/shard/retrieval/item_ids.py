"""Keeps the item id of each row as bytes in one array, and finds an id's row by a hash table.

A row takes its id's bytes and about 20 more; a str, a list slot and a dict entry took 137.

Shapes: R rows, S slots of the table.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tandem.local.shard.attributes.growing_array import grown
from tandem.local.shard.retrieval.arrays import I64

Starts = npt.NDArray[np.integer[Any]]

_FREE = -1
_REMOVED = -2  # a slot of an id that is gone, behind which others may lie
_MIN_SLOT_COUNT = 16
_MAX_USED_SHARE = 0.6
# Ids that are strings at the same time while all are read.
_READ_COUNT = 1 << 16
_HASH_MASK = 0xFFFFFFFF
_MAX_SHORT_START = 0xFFFFFFFF


class ItemIds:
    """Appends ids; an id is found in the row that it was appended with last, until it is removed.

    Not safe to change while it is read, except that ids_of() may read rows that were there before.
    """

    def __init__(self, separated: bytes = b"", found_rows: I64 | None = None) -> None:
        """Takes over the ids of rows, each followed by NUL; those of `found_rows` are found."""
        self._bytes = np.frombuffer(bytearray(separated), np.uint8)
        starts_R = np.flatnonzero(self._bytes == 0) + 1
        self.row_count = len(starts_R)
        self._starts_R: Starts = np.zeros(self.row_count + 1, _starts_type(len(separated)))
        self._starts_R[1:] = starts_R  # and the end of the last
        self._hashes_R = np.zeros(self.row_count, np.uint32)
        for start in range(0, self.row_count, _READ_COUNT):
            rows = np.arange(start, min(start + _READ_COUNT, self.row_count))
            self._hashes_R[rows] = _hashes(self.ids_of(rows))
        self._used_count = self._found_count = 0
        self._slots_S = np.full(_MIN_SLOT_COUNT, _FREE, np.int32)
        if found_rows is not None:
            self._insert(found_rows.astype(np.int32))

    def __len__(self) -> int:
        """Returns how many ids are found."""
        return self._found_count

    def ids_of(self, rows: I64) -> list[str]:
        """Returns the ids that were appended with the rows."""
        data = self._bytes.data
        ends = zip(self._starts_R[rows].tolist(), self._starts_R[rows + 1].tolist(), strict=True)
        return [str(data[start : stop - 1], "utf-8") for start, stop in ends]

    def row_of(self, item_id: str) -> int | None:
        """Returns the row of an id; None if it has none."""
        slot = self._slot_of(item_id)
        return None if slot is None else int(self._slots_S[slot])

    def separated(self, row_count: int) -> bytes:
        """Returns the ids of the first rows, each followed by NUL."""
        return self._bytes[: self._starts_R[row_count]].tobytes()

    def append(self, item_ids: Sequence[str]) -> None:
        """Adds the next rows, of different ids that are not found so far."""
        start, stop = self.row_count, self.row_count + len(item_ids)
        encoded = [item_id.encode() for item_id in item_ids]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        first = int(self._starts_R[start])
        starts = first + np.cumsum(lengths + 1)
        if encoded:
            starts_type = _starts_type(int(starts[-1]))
            self._starts_R = grown(self._starts_R.astype(starts_type, copy=False), stop + 1)
        self._starts_R[start + 1 : stop + 1] = starts
        # The zeros between them are there already.
        self._bytes = grown(self._bytes, int(self._starts_R[stop]))
        added = b"\0".join(encoded)
        self._bytes[first : first + len(added)] = np.frombuffer(added, np.uint8)
        self._hashes_R = grown(self._hashes_R, stop)
        self._hashes_R[start:stop] = _hashes(item_ids)
        self.row_count = stop
        self._insert(np.arange(start, stop, dtype=np.int32))

    def remove(self, item_ids: Sequence[str]) -> list[int]:
        """Returns the rows of the ids that are found, which they are no longer."""
        rows = []
        for item_id in item_ids:
            if (slot := self._slot_of(item_id)) is not None:
                rows.append(int(self._slots_S[slot]))
                self._slots_S[slot] = _REMOVED
                self._found_count -= 1
        return rows

    def _slot_of(self, item_id: str) -> int | None:
        if not self._found_count:
            return None
        wanted, slots = hash(item_id) & _HASH_MASK, self._slots_S.data
        slot, step = wanted & (len(slots) - 1), 0
        while (row := slots[slot]) != _FREE:
            if row >= 0 and self._hashes_R[row] == wanted and self._is(row, item_id):
                return slot
            step += 1
            slot = (slot + step) & (len(slots) - 1)
        return None

    def _is(self, row: int, item_id: str) -> bool:
        start, stop = self._starts_R[row : row + 2].tolist()
        return self._bytes[start : stop - 1].tobytes() == item_id.encode()

    def _insert(self, rows: npt.NDArray[np.int32]) -> None:
        """Has rows found by their ids, which have none so far."""
        if self._used_count + len(rows) > _MAX_USED_SHARE * len(self._slots_S):
            rows = np.concatenate([self._slots_S[self._slots_S >= 0], rows])
            slot_count = max(_MIN_SLOT_COUNT, 1 << int(2 * len(rows) - 1).bit_length())
            self._slots_S = np.full(slot_count, _FREE, np.int32)
            self._used_count = self._found_count = 0
        self._used_count += len(rows)
        self._found_count += len(rows)
        slots, step = self._hashes_R[rows].astype(np.int64), 0
        while len(rows):
            slots = (slots + step) & (len(self._slots_S) - 1)
            is_open = self._slots_S[slots] < 0
            self._slots_S[slots[is_open]] = rows[is_open]
            # Of several rows for one slot, one is in it now.
            is_left = self._slots_S[slots] != rows
            rows, slots = rows[is_left], slots[is_left]
            step += 1


def _starts_type(byte_count: int) -> type[np.integer[Any]]:
    """Returns uint32 if it can address every one of so many bytes, else int64."""
    return np.uint32 if byte_count <= _MAX_SHORT_START else np.int64


def _hashes(item_ids: Sequence[str]) -> npt.NDArray[np.uint32]:
    # It differs by process, so that ids cannot be chosen to have one hash.
    return np.fromiter(map(hash, item_ids), np.int64, len(item_ids)).astype(np.uint32)
