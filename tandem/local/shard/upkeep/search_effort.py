"""Finds the least search effort with which an index reaches a recall target."""

from __future__ import annotations

from collections.abc import Callable

from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.upkeep.recall_sample import MeasuredRecall, RecallSample

_BISECTION_COUNT = 2


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
