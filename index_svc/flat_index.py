"""Exact nearest-neighbour search under string ids."""

from collections.abc import Sequence
from dataclasses import dataclass

import faiss
import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved item."""

    item_id: str
    similarity: float


class FlatIndex:
    """Embeddings by item id, compared with each query one by one.

    FAISS knows rows by int64 labels, which are handed out once and never seen outside. Not safe to
    change while a search runs; searches may run side by side.
    """

    def __init__(self, dimension: int) -> None:
        """Makes an empty index for embeddings of this many values."""
        self._faiss = faiss.IndexIDMap(faiss.IndexFlatIP(dimension))
        self._item_ids: dict[int, str] = {}
        self._labels: dict[str, int] = {}
        self._next_label = 0

    def __len__(self) -> int:
        return len(self._labels)

    def upsert(self, item_ids: Sequence[str], embeddings_ND: F32) -> None:
        """Adds items of different ids, replacing those that are there."""
        self.delete(item_ids)
        labels = range(self._next_label, self._next_label + len(item_ids))
        self._next_label = labels.stop
        self._faiss.add_with_ids(embeddings_ND, np.array(labels, dtype=np.int64))
        self._item_ids.update(zip(labels, item_ids, strict=True))
        self._labels.update(zip(item_ids, labels, strict=True))

    def delete(self, item_ids: Sequence[str]) -> None:
        """Removes items; ids that are not there are no error."""
        labels = [self._labels.pop(item_id) for item_id in item_ids if item_id in self._labels]
        if not labels:  # the usual case, and FAISS would walk through all rows
            return
        self._faiss.remove_ids(faiss.IDSelectorBatch(np.array(labels, dtype=np.int64)))
        for label in labels:
            del self._item_ids[label]

    def search(self, query_D: F32, k: int) -> list[Hit]:
        """Returns the min(k, all) nearest items, best first; ties by smaller item id.

        One query a call: FAISS multiplies batches by BLAS, whose rounding depends on the row's
        place in the block, so that equal embeddings would score unequal and a hit's similarity
        would depend on the other queries.
        """
        count = min(k, len(self))
        if count == 0:
            return []
        fetched_count = min(count + 1, len(self))  # never more, so FAISS pads nothing with -1
        while True:
            similarities_1K, labels_1K = self._faiss.search(query_D[np.newaxis], fetched_count)
            tie_is_cut = similarities_1K[0, -1] == similarities_1K[0, count - 1]
            if fetched_count == len(self) or not tie_is_cut:
                break
            # FAISS keeps any of those level with the last hit; fetch all, to keep the smallest ids.
            fetched_count = min(2 * fetched_count, len(self))
        found = zip(similarities_1K[0].tolist(), labels_1K[0].tolist(), strict=True)
        ordered = sorted((-similarity, self._item_ids[label]) for similarity, label in found)
        return [Hit(item_id, -negated) for negated, item_id in ordered[:count]]
