"""Which of the sampled searches are done again."""

import numpy as np

from index_svc.live_recall import LiveRecall, SampledSearch
from tandem.content import Modality

QUERY = np.ones(4, dtype=np.float32)


def sampled(target: Modality) -> SampledSearch:
    return SampledSearch("main", Modality.TEXT, target, QUERY, 10, None)


def test_directions_take_turns_however_rare_one_is() -> None:
    """One search for texts among a thousand for images is still the second that is done again."""
    live_recall = LiveRecall(sample_share=1.0, window_seconds=60)
    live_recall.offer(sampled(Modality.TEXT))
    for _ in range(1_000):
        live_recall.offer(sampled(Modality.IMAGE))

    taken = [live_recall.take() for _ in range(3)]

    assert {one.direction for one in taken[:2] if one} == {"text_to_image", "text_to_text"}
    assert taken[2] is not None
    assert taken[2].direction == "text_to_image"


def test_of_one_direction_the_oldest_goes_where_too_many_wait() -> None:
    live_recall = LiveRecall(sample_share=1.0, window_seconds=60)
    for _ in range(1_000):
        live_recall.offer(sampled(Modality.IMAGE))

    taken_count = sum(1 for _ in iter(live_recall.take, None))

    assert 1 <= taken_count < 1_000
    assert live_recall.take() is None
