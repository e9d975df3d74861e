"""Builds a FAISS index and tunes it to the recall target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tandem.chassis.telemetry.log import get_logger
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.upkeep.recall_sample import MeasuredRecall, RecallSample
from tandem.local.shard.upkeep.search_effort import tune_for_recall

log = get_logger()


def build_index(
    index_types: Sequence[str],
    sample: RecallSample,
    tuning: IndexTuning,
    *,
    gpu_number: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[FaissIndex, MeasuredRecall]:
    """Returns an index of the sample's rows, of the first type that reaches the recall target.

    If none does, it returns the type with the best recall; with given search parameters there is
    nothing to tune, and it returns the first. Holds two indexes in memory. Raises IndexTypeInvalid
    with FAISS's message.
    """
    best, best_measured = _build(index_types[0], sample, tuning, gpu_number, is_stopped)
    for index_type in index_types[1:]:
        is_reached = best_measured.reaches(tuning.recall_target)
        if tuning.parameters or is_reached or is_stopped():
            break
        log.info(
            "recall target not reached",
            index_type=best.index_type,
            recall_percent=best_measured.percent,
            next_type=index_type,
        )
        built, measured = _build(index_type, sample, tuning, gpu_number, is_stopped)
        if measured.percent > best_measured.percent:
            best, best_measured = built, measured
    return best, best_measured


def _build(
    index_type: str,
    sample: RecallSample,
    tuning: IndexTuning,
    gpu_number: int | None,
    is_stopped: Callable[[], bool],
) -> tuple[FaissIndex, MeasuredRecall]:
    rows = sample.rows
    built = FaissIndex.build(index_type, rows, rows.row_count, gpu_number=gpu_number)
    if not tuning.parameters:
        return built, tune_for_recall(built, sample, tuning.recall_target, is_stopped)
    built.tune(tuning.parameters)
    return built, sample.measure(built, tuning.recall_target)
