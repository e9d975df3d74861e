"""Measures the recall of a FAISS index on queries whose true answers are known."""

import math
from dataclasses import dataclass
from typing import Self

import faiss
import numpy as np
import numpy.typing as npt

from tandem.local.shard.retrieval.arrays import F32, I64
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.exact_scan import compare_rows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.index_type import fetch_count

MIN_QUERY_COUNT = 100
MAX_QUERY_COUNT = 1_000

_K = 20
# 16,384 x 384 values are 24 MiB, if dead rows make a copy necessary.
_COMPARED_COUNT = 16_384
# BLAS sums in another order than comparing one by one.
_ROUNDING = 1e-6
# Standard errors by which recall must exceed the target: of several efforts near it, the least one
# that this sample favours would be too little for most other samples.
_SAFE_ERROR_COUNT = 2
# Standard errors below the target at which more queries would hardly change the outcome.
_MISSED_ERROR_COUNT = 3


@dataclass(frozen=True, slots=True)
class MeasuredRecall:
    """Reports the recall over a sample of queries."""

    percent: float
    error_percent: float
    """The standard error of `percent`."""

    def reaches(self, recall_target: float) -> bool:
        """Returns whether the recall over all such queries very likely reaches the target."""
        return self.percent - _SAFE_ERROR_COUNT * self.error_percent >= 100 * recall_target

    def misses(self, recall_target: float) -> bool:
        """Returns whether the recall is so far below the target that measuring can stop.

        There is no such test above the target: most queries find everything, and the few that find
        little may be still to come, so the standard error of few queries is too small.
        """
        return self.percent + _MISSED_ERROR_COUNT * self.error_percent < 100 * recall_target


class RecallSample:
    """Holds queries [Q, d], in random order, and the similarities of each one's 20 nearest rows.

    A row as near as those counts as found, so that of two equal embeddings either will do.
    """

    def __init__(self, rows: EmbeddingRows, queries_QD: F32, own_rows_Q: I64) -> None:
        """Compares each query with all the frozen rows: 10 s for 1,000 with a million.

        own_rows_Q is the row that each query came from, which does not count; -1 for none.
        """
        self.rows = rows
        self.queries_QD = queries_QD
        self._own_rows_Q = own_rows_Q
        self._nearest_QK = _nearest_similarities(rows, queries_QD, own_rows_Q)

    @classmethod
    def draw(cls, rows: EmbeddingRows, others: EmbeddingRows, *, seed: int = 0) -> Self:
        """Draws at most 1,000 queries, from the other modality's rows if it has enough.

        Users search images by text and texts by image, and such queries lie elsewhere than the
        items, so an index tuned on its own items would promise too much.
        """
        is_other = len(others) >= MIN_QUERY_COUNT
        source = others if is_other else rows
        live = np.flatnonzero(source.live)
        count = min(len(live), MAX_QUERY_COUNT)
        chosen = np.random.default_rng(seed).choice(live, count, replace=False)
        own_rows_Q = np.full(count, -1, dtype=np.int64) if is_other else chosen
        return cls(rows, source.gather(chosen), own_rows_Q)

    def __len__(self) -> int:
        return len(self.queries_QD)

    def measure(self, index: FaissIndex, recall_target: float | None = None) -> MeasuredRecall:
        """Returns the recall of an index of these rows, with its current parameters.

        With a target, it stops as soon as that is clearly missed.
        """
        percents: list[float] = []
        measured = MeasuredRecall(0.0, 0.0)
        for start in range(0, len(self), MIN_QUERY_COUNT):
            stop = min(start + MIN_QUERY_COUNT, len(self))
            percents.extend(self._found_percent(index, number) for number in range(start, stop))
            error_percent = float(np.std(percents)) / math.sqrt(max(1, len(percents) - 1))
            measured = MeasuredRecall(float(np.mean(percents)), error_percent)
            if recall_target is not None and measured.misses(recall_target):
                break
        return measured

    def _found_percent(self, index: FaissIndex, number: int) -> float:
        query_D, nearest_K = self.queries_QD[number], self._nearest_QK[number]
        nearest_K = nearest_K[np.isfinite(nearest_K)]
        if not len(nearest_K):
            return 100.0
        live = self.rows.live[: index.row_count]
        mask = live if self.rows.dead_count and index.takes_selector else None
        # One more, because the query itself may be among them.
        candidates, _ = index.candidates(query_D, fetch_count(index, _K) + 1, mask=mask)
        kept = candidates[live[candidates] & (candidates != self._own_rows_Q[number])]
        similarities, _ = compare_rows(self.rows, query_D, kept, _K)
        found_count = int(np.count_nonzero(similarities >= nearest_K[-1] - _ROUNDING))
        return 100 * min(found_count, len(nearest_K)) / len(nearest_K)


def _nearest_similarities(
    rows: EmbeddingRows, queries_QD: F32, own_rows_Q: I64
) -> npt.NDArray[np.float32]:
    """Returns the similarities of the 20 nearest rows, best first; -inf if there are fewer."""
    nearest_QK = np.full((len(queries_QD), _K), -np.inf, dtype=np.float32)
    for first_row, block in rows.blocks():
        for start in range(0, len(block), _COMPARED_COUNT):
            part = block[start : start + _COMPARED_COUNT]
            numbers = np.arange(first_row + start, first_row + start + len(part))
            live = rows.live[numbers]
            if not live.all():
                part, numbers = part[live], numbers[live]
            if not len(part) or not len(queries_QD):
                continue
            similarities, places = faiss.knn(
                queries_QD, part, min(_K + 1, len(part)), metric=faiss.METRIC_INNER_PRODUCT
            )
            similarities[numbers[places] == own_rows_Q[:, np.newaxis]] = -np.inf
            both = np.concatenate([nearest_QK, similarities], axis=1)
            nearest_QK = -np.sort(-both, axis=1)[:, :_K]
    return nearest_QK
