"""Builds a FAISS index and tunes it to the recall target."""

from collections.abc import Callable, Sequence

from tandem.chassis.telemetry.log import get_logger
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.upkeep.recall_sample import MeasuredRecall, RecallSample

log = get_logger()

_BISECTION_COUNT = 2


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


def tune_for_recall(
    index: FaissIndex,
    sample: RecallSample,
    recall_target: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> MeasuredRecall:
    """Sets the least search effort that reaches the target, and returns its recall.

    Takes seconds. Tries nprobe or efSearch in powers of two, then between the last that missed and
    the first that reached the target; a type with neither is only measured. If none reaches the
    target, the largest effort is set.
    """
    name, efforts = _efforts(index)
    if not name:
        return sample.measure(index, recall_target)

    def recall_with(effort: int) -> MeasuredRecall:
        index.tune({name: effort})
        return sample.measure(index, recall_target)

    too_little, enough, measured = 0, efforts[0], MeasuredRecall(0.0, 0.0)
    for enough in efforts:
        measured = recall_with(enough)
        if measured.reaches(recall_target) or is_stopped():
            break
        too_little = enough
    for _ in range(_BISECTION_COUNT):
        middle = (too_little + enough) // 2
        if not too_little < middle < enough or is_stopped():
            break
        at_middle = recall_with(middle)
        if at_middle.reaches(recall_target):
            enough, measured = middle, at_middle
        else:
            too_little = middle
    index.tune({name: enough})
    return measured


def _efforts(index: FaissIndex) -> tuple[str, list[int]]:
    """Returns the name of the effort parameter and the values to try; "" if there is none."""
    if count := index.max_list_count:
        powers = [1 << power for power in range(count.bit_length())]
        return "nprobe", powers if powers[-1] == count else [*powers, count]
    if index.index_type.startswith("HNSW"):
        return "efSearch", [1 << power for power in range(4, 11)]
    return "", []
