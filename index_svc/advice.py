"""What each FAISS type would cost and find, measured on an index's own items."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from index_svc.exact_scan import compare_rows, scan_rows
from index_svc.faiss_index import FaissIndex
from index_svc.hit import F32
from index_svc.index_type import (
    FLAT,
    IndexTuning,
    candidate_types,
    fetch_count,
    tune_for_recall,
)
from index_svc.maintenance import sample_queries
from index_svc.searchable_index import SearchableIndex
from tandem.content import Modality
from tandem.errors import IndexTypeInvalid

_K = 20
_TIMED_COUNT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredType:
    """One FAISS type over the items of an index."""

    index_type: str
    parameters: Mapping[str, float]
    recall_percent: float
    search_p50_seconds: float
    search_p99_seconds: float
    build_seconds: float
    index_bytes: int
    fits: bool
    """Reaches the recall target within the memory."""
    refusal: str = ""


def measure_types(
    index: SearchableIndex,
    modality: Modality,
    tuning: IndexTuning,
    index_types: Sequence[str] = (),
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[MeasuredType]:
    """Yields each type as it was measured, by one thread, at k = 20.

    Holds one more FAISS index in memory at a time. Searches and changes go on; what comes while a
    type is built is not in it.
    """
    part = index.part(modality)
    queries_QD = sample_queries(index, modality)
    types = index_types or candidate_types(len(part), index.info.dimension)
    for index_type in types:
        if is_stopped():
            return
        try:
            yield _measure(index, modality, tuning, index_type, queries_QD, is_stopped)
        except IndexTypeInvalid as error:
            yield MeasuredType(
                index_type=index_type,
                parameters={},
                recall_percent=0.0,
                search_p50_seconds=0.0,
                search_p99_seconds=0.0,
                build_seconds=0.0,
                index_bytes=0,
                fits=False,
                refusal=error.message,
            )


def _measure(
    index: SearchableIndex,
    modality: Modality,
    tuning: IndexTuning,
    index_type: str,
    queries_QD: F32,
    is_stopped: Callable[[], bool],
) -> MeasuredType:
    with index.reading():
        rows = index.part(modality).rows.frozen()
    if not len(queries_QD) or not rows.live.any():
        raise IndexTypeInvalid(why=f"it has no {modality.value} to measure; ingest some")
    start_time = time.perf_counter()
    if index_type == FLAT:
        build_seconds, index_bytes, recall_percent = 0.0, 0, 100.0
        parameters: Mapping[str, float] = {}

        def search(query_D: F32) -> None:
            scan_rows(rows, query_D, _K)
    else:
        built = FaissIndex.build(index_type, rows, rows.row_count)
        build_seconds = time.perf_counter() - start_time
        recall_percent = tune_for_recall(built, rows, queries_QD, tuning.recall_target, is_stopped)
        parameters, index_bytes = built.parameters, built.size_bytes()

        def search(query_D: F32) -> None:
            candidates, _ = built.candidates(query_D, fetch_count(built, _K))
            compare_rows(rows, query_D, candidates, _K)

    seconds = _timed(search, queries_QD)
    return MeasuredType(
        index_type=index_type,
        parameters=parameters,
        recall_percent=recall_percent,
        search_p50_seconds=float(np.percentile(seconds, 50)),
        search_p99_seconds=float(np.percentile(seconds, 99)),
        build_seconds=build_seconds,
        index_bytes=index_bytes,
        fits=recall_percent >= 100 * tuning.recall_target
        and not 0 < tuning.memory_bytes < index_bytes,
    )


def _timed(search: Callable[[F32], None], queries_QD: F32) -> list[float]:
    seconds = []
    for number in range(_TIMED_COUNT):
        start_time = time.perf_counter()
        search(queries_QD[number % len(queries_QD)])
        seconds.append(time.perf_counter() - start_time)
    return seconds
