"""Measures what each FAISS type would cost and find, on an index's own items."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tandem.contract.content import Modality
from tandem.errors import IndexTypeInvalid
from tandem.local.shard.retrieval.arrays import F32
from tandem.local.shard.retrieval.exact_scan import compare_rows, scan_rows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.index_type import FLAT, IndexTuning, candidate_types, fetch_count
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.upkeep.index_build import tune_for_recall
from tandem.local.shard.upkeep.recall_sample import MeasuredRecall, RecallSample

_K = 20
_TIMED_COUNT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredType:
    """Reports the measurements of one FAISS type."""

    index_type: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    recall_percent: float = 0.0
    search_p50_seconds: float = 0.0
    search_p99_seconds: float = 0.0
    build_seconds: float = 0.0
    index_bytes: int = 0
    fits: bool = False
    """Whether it reaches the recall target within the memory."""
    refusal: str = ""


def measure_types(
    index: SearchableIndex,
    modality: Modality,
    tuning: IndexTuning,
    index_types: Sequence[str] = (),
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[MeasuredType]:
    """Yields the measurements of one type after another, in one thread, at k = 20.

    Holds one more FAISS index in memory at a time. Searches and changes continue; later changes are
    not in the measured index.
    """
    with index.reading():
        rows = index.part(modality).rows.frozen()
        others = index.part(modality.other).rows.frozen()
    sample = RecallSample.draw(rows, others)
    for index_type in index_types or candidate_types(len(rows), index.info.dimension):
        if is_stopped():
            return
        try:
            if not len(rows):
                raise IndexTypeInvalid(why=f"it has no {modality.value} to measure; ingest some")
            yield _measure(sample, tuning, index_type, is_stopped)
        except IndexTypeInvalid as error:
            yield MeasuredType(index_type=index_type, refusal=error.message)


def _measure(
    sample: RecallSample,
    tuning: IndexTuning,
    index_type: str,
    is_stopped: Callable[[], bool],
) -> MeasuredType:
    rows = sample.rows
    start_time = time.perf_counter()
    if index_type == FLAT:
        build_seconds, index_bytes, measured = 0.0, 0, MeasuredRecall(100.0, 0.0)
        parameters: Mapping[str, float] = {}

        def search(query_D: F32) -> None:
            scan_rows(rows, query_D, _K)
    else:
        built = FaissIndex.build(index_type, rows, rows.row_count)
        build_seconds = time.perf_counter() - start_time
        measured = tune_for_recall(built, sample, tuning.recall_target, is_stopped)
        parameters, index_bytes = built.parameters, built.size_bytes()

        def search(query_D: F32) -> None:
            candidates, _ = built.candidates(query_D, fetch_count(built, _K))
            compare_rows(rows, query_D, candidates, _K)

    seconds = _timed(search, sample.queries_QD)
    return MeasuredType(
        index_type=index_type,
        parameters=parameters,
        recall_percent=measured.percent,
        search_p50_seconds=float(np.percentile(seconds, 50)),
        search_p99_seconds=float(np.percentile(seconds, 99)),
        build_seconds=build_seconds,
        index_bytes=index_bytes,
        fits=measured.reaches(tuning.recall_target) and not 0 < tuning.memory_bytes < index_bytes,
    )


def _timed(search: Callable[[F32], None], queries_QD: F32) -> list[float]:
    seconds = []
    for number in range(_TIMED_COUNT):
        start_time = time.perf_counter()
        search(queries_QD[number % len(queries_QD)])
        seconds.append(time.perf_counter() - start_time)
    return seconds
