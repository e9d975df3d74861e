"""Which FAISS type an index gets, and how hard it must look to reach a recall."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from index_svc.embedding_rows import EmbeddingRows
from index_svc.exact_scan import compare_rows, scan_rows
from index_svc.faiss_index import FaissIndex, make_empty
from index_svc.hit import F32
from tandem.errors import IndexTypeInvalid

AUTO = "auto"
FLAT = "Flat"
"""Every item is compared: no FAISS index is made, which would be a second copy of them."""

# One core compares 20,000 x 384 values in about 1.2 ms: an approximate index saves nothing yet.
MIN_APPROXIMATE_COUNT = 20_000

_RECALL_K = 20
_LISTS = re.compile(r"IVF(\d+)(,.*)")
MAX_TUNING_QUERY_COUNT = 100
_BISECTION_COUNT = 2
_MIN_LIST_COUNT = 64
_MAX_LIST_COUNT = 1 << 16


@dataclass(frozen=True, slots=True)
class IndexTuning:
    """What an operator asks of the index of one modality."""

    index_type: str = AUTO
    """"auto", "Flat", or any string that FAISS's factory takes."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Search parameters by FAISS's names; none are found by measuring."""
    recall_target: float = 0.98
    memory_bytes: int = 0
    """For FAISS's codes, beside the embeddings themselves; 0 is no limit."""

    def check(self, dimension: int) -> None:
        """Raises IndexTypeInvalid for what FAISS or this program cannot do."""
        if not 0 < self.recall_target <= 1:
            raise IndexTypeInvalid(why=f"the recall target is {self.recall_target}; send 0 to 1")
        if self.index_type in (AUTO, FLAT):
            return
        make_empty(self.index_type, dimension)


def choose_index_type(tuning: IndexTuning, item_count: int, dimension: int) -> str:
    """Returns the type to build: what was asked for, or by "auto" what fits size and memory."""
    if tuning.index_type != AUTO:
        return tuning.index_type
    if item_count < MIN_APPROXIMATE_COUNT:
        return FLAT
    lists = f"IVF{balanced_list_count(item_count)}"
    if not tuning.memory_bytes or item_count * (dimension + 8) <= tuning.memory_bytes:
        return f"{lists},SQ8"
    # "np" leaves out a training step that takes ten times as long as all others.
    for part_size in (2, 4, 8, 16, 32):
        if dimension % part_size == 0 and item_count * (dimension // part_size + 8) <= (
            tuning.memory_bytes
        ):
            return f"{lists},PQ{dimension // part_size}np"
    return FLAT


def candidate_types(item_count: int, dimension: int) -> list[str]:
    """Returns the types worth measuring for that many items."""
    lists = f"IVF{balanced_list_count(item_count)}"
    types = [FLAT, f"{lists},Flat", f"{lists},SQ8", "HNSW32", "SQ8"]
    sizes = [size for size in (2, 4, 8) if dimension % size == 0]
    return types + [f"{lists},PQ{dimension // size}np" for size in sizes]


def is_outdated(current: str, wanted: str) -> bool:
    """Returns whether an index of the current type should be built anew as the wanted one.

    Lists may be four times too few or too many before that: training costs minutes.
    """
    if current == wanted:
        return False
    numbers = [_LISTS.fullmatch(index_type) for index_type in (current, wanted)]
    if numbers[0] is None or numbers[1] is None or numbers[0][2] != numbers[1][2]:
        return True
    ratio = int(numbers[0][1]) / int(numbers[1][1])
    return not 1 / 4 < ratio < 4


@dataclass(frozen=True, slots=True)
class MeasuredRecall:
    """What an index found of what it should have, over a sample of queries."""

    percent: float
    error_percent: float
    """The standard error of `percent`, by which another sample's would differ."""

    def reaches(self, recall_target: float) -> bool:
        """Says whether the recall of all such queries is likely to be the target or above."""
        return self.percent - self.error_percent >= 100 * recall_target


def balanced_list_count(item_count: int) -> int:
    """Returns the power of two nearest to 2 √n lists, so that lists and list lengths balance."""
    exponent = round(math.log2(2 * math.sqrt(max(item_count, 1))))
    return min(max(1 << exponent, _MIN_LIST_COUNT), _MAX_LIST_COUNT)


def fetch_count(index: FaissIndex, k: int) -> int:
    """Returns how many candidates to compare exactly for k hits: coarse codes misplace more."""
    if index.codes_are_exact:
        return k + 1
    return max(4 * k, 100) if ",PQ" in f",{index.index_type}" else max(2 * k, k + 20)


def tune_for_recall(
    index: FaissIndex,
    rows: EmbeddingRows,
    queries_QD: F32,
    recall_target: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> float:
    """Sets the least search effort that reaches the target, and returns the recall in percent.

    Reached is a target that the mean recall exceeds by its standard error: of several efforts near
    the target the least that a hundred queries favour would be too little for most other hundreds.

    `rows` are frozen: this takes seconds. Tries nprobe or efSearch in powers of two, then between
    the last that was too little and the first that was enough; a type with neither is only
    measured.
    """
    truth = _nearest_rows(index, rows, queries_QD)

    def recall_with(parameters: Mapping[str, float]) -> MeasuredRecall:
        index.tune(parameters)
        return _measured_recall(index, rows, queries_QD, truth)

    name, efforts = _efforts(index)
    if not name:
        return recall_with({}).percent
    too_little, enough, measured = 0, efforts[0], MeasuredRecall(0.0, 0.0)
    for enough in efforts:
        measured = recall_with({name: enough})
        if measured.reaches(recall_target) or is_stopped():
            break
        too_little = enough
    for _ in range(_BISECTION_COUNT):
        middle = (too_little + enough) // 2
        if not too_little < middle < enough or is_stopped():
            break
        at_middle = recall_with({name: middle})
        if at_middle.reaches(recall_target):
            enough, measured = middle, at_middle
        else:
            too_little = middle
    index.tune({name: enough})
    return measured.percent


def measured_recall(index: FaissIndex, rows: EmbeddingRows, queries_QD: F32) -> MeasuredRecall:
    """Returns which share of the 20 truly nearest of frozen rows the index finds, as tuned."""
    return _measured_recall(index, rows, queries_QD, _nearest_rows(index, rows, queries_QD))


def _nearest_rows(index: FaissIndex, rows: EmbeddingRows, queries_QD: F32) -> list[set[int]]:
    wanted = np.arange(rows.row_count) < index.row_count
    return [
        set(scan_rows(rows, query_D, _RECALL_K, wanted=wanted)[1].tolist())
        for query_D in queries_QD
    ]


def _measured_recall(
    index: FaissIndex, rows: EmbeddingRows, queries_QD: F32, truth: Sequence[set[int]]
) -> MeasuredRecall:
    live = rows.live[: index.row_count]
    wanted = live if rows.dead_count and index.takes_selector else None
    percents_Q = []
    for query_D, nearest in zip(queries_QD, truth, strict=True):
        candidates, _ = index.candidates(query_D, fetch_count(index, _RECALL_K), wanted=wanted)
        _, found = compare_rows(rows, query_D, candidates[live[candidates]], _RECALL_K)
        percents_Q.append(100 * len(nearest.intersection(found.tolist())) / max(1, len(nearest)))
    if not percents_Q:
        return MeasuredRecall(0.0, 0.0)
    error_percent = np.std(percents_Q) / math.sqrt(max(1, len(percents_Q) - 1))
    return MeasuredRecall(float(np.mean(percents_Q)), float(error_percent))


def _efforts(index: FaissIndex) -> tuple[str, list[int]]:
    """Returns the parameter that says how hard to look, and what to try; "" where there is none."""
    if count := index.max_list_count:
        powers = [1 << power for power in range(count.bit_length())]
        return "nprobe", powers if powers[-1] == count else [*powers, count]
    if index.index_type.startswith("HNSW"):
        return "efSearch", [1 << power for power in range(4, 11)]
    return "", []
