"""Stores the embeddings of one modality by row number, and each row's item id."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tandem.local.shard.retrieval.arrays import F32, I64, Mask

# 65,536 x 384 float32 values are 96 MiB: few blocks, with little unused space in the last.
BLOCK_ROW_COUNT = 1 << 16
# Gathering a block's rows at once costs as much as copying about six of them one by one.
_FEW_OF_A_BLOCK = 4


class EmbeddingRows:
    """Appends rows; a replaced or deleted row stays, dead, until compaction.

    So a row number means one embedding for the lifetime of this object, and FAISS, which knows
    items only by row number, never has to move or remove any. Not safe to change while it is read.
    """

    def __init__(
        self,
        dimension: int,
        embeddings_ND: F32 | None = None,
        item_ids: Sequence[str] = (),
        live: Mask | None = None,
    ) -> None:
        """Takes over existing rows [N, d], for example mapped from a file."""
        self.dimension = dimension
        self._blocks: list[F32] = []
        self._starts: list[int] = []
        self._item_ids = list(item_ids)
        self._row_count = len(self._item_ids)
        self._live = np.zeros(0, dtype=np.bool_)
        self._used_count = 0  # of the last block
        if embeddings_ND is not None and len(embeddings_ND):
            self._blocks.append(embeddings_ND)
            self._starts.append(0)
            self._used_count = len(embeddings_ND)
            self._live = np.ones(len(item_ids), np.bool_) if live is None else live.copy()
        rows = np.flatnonzero(self._live[: self._row_count]).tolist()
        self._rows = {self._item_ids[row]: row for row in rows}
        self._live_count = len(rows)

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

    def item_id(self, row: int) -> str:
        """Returns the id of the item whose row it is, or was."""
        return self._item_ids[row]

    def row_of(self, item_id: str) -> int | None:
        """Returns the item's row; None if it has none."""
        return self._rows.get(item_id)

    def item_ids(self) -> list[str]:
        """Returns a copy of each row's item id, including dead rows."""
        return self._item_ids[: self._row_count]

    def append(self, item_ids: Sequence[str], embeddings_ND: F32) -> range:
        """Adds a live row for each of different items, killing their old rows."""
        self.kill(item_ids)
        rows = range(self.row_count, self.row_count + len(item_ids))
        self._store(embeddings_ND)
        self._item_ids.extend(item_ids)
        if len(self._live) < rows.stop:
            grown = np.zeros(max(rows.stop, 2 * len(self._live)), dtype=np.bool_)
            grown[: len(self._live)] = self._live
            self._live = grown
        self._live[rows.start : rows.stop] = True
        self._rows.update(zip(item_ids, rows, strict=True))
        self._row_count = rows.stop
        self._live_count = len(self._rows)
        return rows

    def kill(self, item_ids: Sequence[str]) -> list[int]:
        """Marks the items' rows dead and returns them, ignoring ids without a row."""
        rows = [self._rows.pop(item_id) for item_id in item_ids if item_id in self._rows]
        if rows:
            self._live[rows] = False
        self._live_count = len(self._rows)
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
        if len(self._blocks) == 1:
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
