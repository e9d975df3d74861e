"""Tests which of the sampled searches are repeated."""

import numpy as np

from tandem.contract.content import Modality
from tandem.local.shard.upkeep.live_recall import LiveRecall
from tandem.stages.retrieval import ShardQuery

EMBEDDING = np.full(4, 0.5, dtype=np.float32)


def sampled(target: Modality) -> ShardQuery:
    return ShardQuery("main", "model-a", target, Modality.TEXT, 10, embeddings=[EMBEDDING])


def test_directions_alternate_even_if_one_is_rare() -> None:
    """Two text searches among a thousand image searches are the second and fourth to repeat."""
    live_recall = LiveRecall(sample_share=1.0, window_seconds=60)
    for number in range(1_000):
        live_recall.offer(sampled(Modality.IMAGE))
        if number in (500, 900):
            live_recall.offer(sampled(Modality.TEXT))

    taken = [live_recall.take() for _ in range(5)]

    assert [one.direction if one else None for one in taken] == [
        "text_to_image",
        "text_to_text",
        "text_to_image",
        "text_to_text",
        "text_to_image",
    ]


def test_the_oldest_sample_of_a_direction_is_dropped_when_too_many_wait() -> None:
    live_recall = LiveRecall(sample_share=1.0, window_seconds=60)
    for _ in range(1_000):
        live_recall.offer(sampled(Modality.IMAGE))

    taken_count = sum(1 for _ in iter(live_recall.take, None))

    assert 1 <= taken_count < 1_000
    assert live_recall.take() is None
