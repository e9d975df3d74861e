"""Stores the embeddings of one modality by row number, and each row's item id."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock

import numpy as np
import numpy.typing as npt

from tandem.local.shard.retrieval.arrays import F32, I64, Mask
from tandem.local.shard.retrieval.item_ids import ItemIds
from tandem.local.shard.retrieval.row_file import RowFile

BLOCK_ROW_COUNT = 1 << 14
"""16,384 x 384 float32 values are 24 MiB: what stays in memory until it is worth a write."""
# Gathering a block's rows at once costs as much as copying about six of them one by one.
_FEW_OF_A_BLOCK = 4


class EmbeddingRows:
    """Appends rows; a replaced or deleted row stays, dead, until compaction.

    So a row number means one embedding for the lifetime of this object, and FAISS, which knows
    items only by row number, never has to move or remove any. Not safe to change while it is read.

    With a file, save() moves rows out of memory into it, and they are mapped from there.
    """

    def __init__(
        self,
        dimension: int,
        embeddings_ND: F32 | None = None,
        item_ids: bytes = b"",
        live: Mask | None = None,
        *,
        file: RowFile | None = None,
    ) -> None:
        """Takes over existing rows [N, d], for example mapped from a file.

        `item_ids` has the id of each row, followed by NUL.
        """
        self.dimension = dimension
        self.file = file
        """Has the first rows; None keeps all in memory."""
        self._saving = Lock()
        self._blocks: list[F32] = []
        self._starts: list[int] = []
        row_count = 0 if embeddings_ND is None else len(embeddings_ND)
        self._live = np.zeros(0, dtype=np.bool_)
        self._used_count = row_count  # of the last block
        if embeddings_ND is not None and row_count:
            self._blocks.append(embeddings_ND)
            self._starts.append(0)
            self._live = np.ones(row_count, np.bool_) if live is None else live.copy()
        self._item_ids = ItemIds(item_ids, np.flatnonzero(self._live))
        self._row_count = self._item_ids.row_count
        self._live_count = len(self._item_ids)

    def __len__(self) -> int:
        """Returns the number of live rows, which is the number of items."""
        return self._live_count

    @property
    def row_count(self) -> int:
        """Returns the number of rows, including dead ones."""
        return self._row_count

    @property
    def dead_count(self) -> int:
        return self._row_count - self._live_count

    @property
    def live(self) -> Mask:
        """Returns a view of which rows are live, [row_count]."""
        return self._live[: self._row_count]

    @property
    def unsaved_count(self) -> int:
        """Returns the number of rows that save() would move; 0 without a file."""
        return 0 if self.file is None else self._row_count - self.file.row_count

    def item_ids(self, rows: I64) -> list[str]:
        """Returns the ids of the items whose rows they are, or were."""
        return self._item_ids.ids_of(rows)

    def row_of(self, item_id: str) -> int | None:
        """Returns the item's row; None if it has none."""
        return self._item_ids.row_of(item_id)

    def separated_ids(self, row_count: int) -> bytes:
        """Returns the item ids of the first rows, dead ones too, each followed by NUL."""
        return self._item_ids.separated(row_count)

    def append(self, item_ids: Sequence[str], embeddings_ND: F32) -> range:
        """Adds a live row for each of different items, killing their old rows."""
        self.kill(item_ids)
        rows = range(self.row_count, self.row_count + len(item_ids))
        self._store(embeddings_ND)
        self._item_ids.append(item_ids)
        if len(self._live) < rows.stop:
            grown = np.zeros(max(rows.stop, 2 * len(self._live)), dtype=np.bool_)
            grown[: len(self._live)] = self._live
            self._live = grown
        self._live[rows.start : rows.stop] = True
        self._row_count = rows.stop
        self._live_count = len(self._item_ids)
        return rows

    def kill(self, item_ids: Sequence[str]) -> list[int]:
        """Marks the items' rows dead and returns them, ignoring ids without a row."""
        rows = self._item_ids.remove(item_ids)
        if rows:
            self._live[rows] = False
        self._live_count = len(self._item_ids)
        return rows

    def frozen(self) -> EmbeddingRows:
        """Returns a read-only copy of these rows as they are now, for long work without a lock.

        Costs a byte a row.
        """
        frozen = EmbeddingRows(self.dimension)
        frozen._blocks = self._blocks.copy()
        frozen._starts = self._starts.copy()
        frozen._used_count = self._used_count
        frozen._item_ids = self._item_ids  # rows are only ever added
        frozen._row_count = self._row_count
        frozen._live = self.live.copy()
        frozen._live_count = self._live_count
        return frozen

    def save(self, changing: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """Moves all rows that there are now into the file, if there is one.

        Searches and changes may continue, as a row never changes. `changing` holds them off while
        the mapped rows take the place of those in memory. Raises OSError, and then nothing changed.
        """
        with self._saving:
            stop = self._row_count  # before the blocks, which have these rows at least
            if self.file is None or stop == self.file.row_count:
                return
            saved = self.file.row_count
            # A copy, to which an append may add a block at any time.
            blocks = list(zip(self._starts, self._blocks, strict=False))
            self.file.append(
                block[max(0, saved - start) : stop - start]
                for start, block in blocks
                if saved < start + len(block) and start < stop
            )
            mapped_ND = self.file.mapped()
            with changing():
                self._replace_first(mapped_ND)

    def prefetch(self, rows: I64) -> None:
        """Has the disk read these rows at the same time, those that are not in memory."""
        if self.file is not None:
            self.file.prefetch(rows[rows < self.file.row_count])

    def blocks(self, start_row: int = 0) -> Iterator[tuple[int, F32]]:
        """Yields the first row's number of each block, and views of its rows [n, d]."""
        for number, (start, block) in enumerate(zip(self._starts, self._blocks, strict=True)):
            is_last = number == len(self._blocks) - 1
            stop = start + (self._used_count if is_last else len(block))
            first = max(start, start_row)
            if first < stop:
                yield first, block[first - start : stop - start]

    def gather(self, rows: I64) -> F32:
        """Returns a copy of the rows' embeddings, [n, d], in the order of `rows`."""
        if len(self._blocks) == 1 or (len(rows) and rows.max() < self._starts[1]):
            return self._blocks[0][rows]
        gathered = np.empty((len(rows), self.dimension), dtype=np.float32)
        if len(rows) <= _FEW_OF_A_BLOCK * len(self._blocks):
            for place, row in enumerate(rows.tolist()):
                number = bisect_right(self._starts, row) - 1
                gathered[place] = self._blocks[number][row - self._starts[number]]
            return gathered
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(owners):
            mine = owners == number
            gathered[mine] = self._blocks[number][rows[mine] - self._starts[number]]
        return gathered

    def _replace_first(self, mapped_ND: F32) -> None:
        """Serves the first rows from there, and forgets the blocks that have no others."""
        count = len(mapped_ND)
        starts, blocks, used_count = [0], [mapped_ND], count
        if self._row_count > count:
            for start, block in zip(self._starts, self._blocks, strict=True):
                if start + len(block) > count:
                    starts.append(max(start, count))
                    blocks.append(block[starts[-1] - start :])
            used_count = self._row_count - starts[-1]
        self._starts, self._blocks, self._used_count = starts, blocks, used_count

    def _store(self, embeddings_ND: npt.NDArray[np.float32]) -> None:
        stored_count = 0
        while stored_count < len(embeddings_ND):
            if not self._blocks or self._used_count == len(self._blocks[-1]):
                self._starts.append(self.row_count + stored_count)
                self._blocks.append(np.empty((BLOCK_ROW_COUNT, self.dimension), dtype=np.float32))
                self._used_count = 0
            block = self._blocks[-1]
            count = min(len(block) - self._used_count, len(embeddings_ND) - stored_count)
            block[self._used_count : self._used_count + count] = embeddings_ND[
                stored_count : stored_count + count
            ]
            self._used_count += count
            stored_count += count
