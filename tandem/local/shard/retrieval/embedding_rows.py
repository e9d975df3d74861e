"""Stores the embeddings of one modality by row number, and each row's item id."""

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
        none_ND = np.empty((0, dimension), np.float32)
        self._first_ND = none_ND if embeddings_ND is None else embeddings_ND
        self._later_ND = none_ND  # those behind them, and room for more
        self._live = np.ones(len(self._first_ND), np.bool_) if live is None else live.copy()
        self.ids = ItemIds(item_ids, np.flatnonzero(self._live))
        """Of the items whose rows they are, or were."""
        self._row_count = self.ids.row_count
        self._live_count = len(self.ids)

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

    def append(self, item_ids: Sequence[str], embeddings_ND: F32) -> range:
        """Adds a live row for each of different items, killing their old rows."""
        self.kill(item_ids)
        rows = range(self.row_count, self.row_count + len(item_ids))
        self._store(embeddings_ND)
        self.ids.append(item_ids)
        if len(self._live) < rows.stop:
            grown = np.zeros(max(rows.stop, 2 * len(self._live)), dtype=np.bool_)
            grown[: len(self._live)] = self._live
            self._live = grown
        self._live[rows.start : rows.stop] = True
        self._row_count = rows.stop
        self._live_count = len(self.ids)
        return rows

    def kill(self, item_ids: Sequence[str]) -> list[int]:
        """Marks the items' rows dead and returns them, ignoring ids without a row."""
        rows = self.ids.remove(item_ids)
        if rows:
            self._live[rows] = False
        self._live_count = len(self.ids)
        return rows

    def frozen(self) -> "EmbeddingRows":
        """Returns a read-only copy of these rows as they are now, for long work without a lock.

        Costs a byte a row.
        """
        frozen = EmbeddingRows(self.dimension)
        frozen._first_ND, frozen._later_ND = self._first_ND, self._later_ND
        frozen.ids = self.ids  # rows are only ever added
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
            if self.file is None or self._row_count == self.file.row_count:
                return
            self.file.append(block for _, block in list(self.blocks(self.file.row_count)))
            mapped_ND = self.file.mapped()
            with changing():
                moved_count = len(mapped_ND) - len(self._first_ND)
                is_all = len(mapped_ND) == self._row_count
                # An empty part of an array would keep all of it.
                self._later_ND = mapped_ND[:0] if is_all else self._later_ND[moved_count:]
                self._first_ND = mapped_ND

    def prefetch(self, rows: I64) -> None:
        """Has the disk read these rows at the same time, those that are not in memory."""
        if self.file is not None:
            self.file.prefetch(rows[rows < self.file.row_count])

    def blocks(self, start_row: int = 0) -> Iterator[tuple[int, F32]]:
        """Yields the first row's number of each block, and views of its rows [n, d]."""
        later_count = self._row_count - len(self._first_ND)  # first: an append may add more
        for start, block in (
            (0, self._first_ND),
            (len(self._first_ND), self._later_ND[:later_count]),
        ):
            first = max(start, start_row)
            if first < start + len(block):
                yield first, block[first - start :]

    def gather(self, rows: I64) -> F32:
        """Returns a copy of the rows' embeddings, [n, d], in the order of `rows`."""
        first_count = len(self._first_ND)
        if not len(rows) or rows.max() < first_count:
            return self._first_ND[rows]
        gathered = np.empty((len(rows), self.dimension), dtype=np.float32)
        is_first = rows < first_count
        gathered[is_first] = self._first_ND[rows[is_first]]
        gathered[~is_first] = self._later_ND[rows[~is_first] - first_count]
        return gathered

    def _store(self, embeddings_ND: npt.NDArray[np.float32]) -> None:
        start = self._row_count - len(self._first_ND)
        stop = start + len(embeddings_ND)
        if stop > len(self._later_ND):
            room_count = max(stop, BLOCK_ROW_COUNT, start * 3 // 2)
            larger_ND = np.empty((room_count, self.dimension), np.float32)
            larger_ND[:start] = self._later_ND[:start]
            self._later_ND = larger_ND
        self._later_ND[start:stop] = embeddings_ND
