"""A shard's answer becomes the hits of each search that shared the call."""

from dataclasses import replace

import numpy as np
import pytest

from tandem.contract.content import Modality
from tandem.contract.model_description import ProbabilityCalibration
from tandem.contract.search_path import KeywordState, SearchPath, SearchStrategy
from tandem.errors import SequenceNotReached
from tandem.stages.reranking import Match
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import (
    Found,
    KeywordFound,
    RowHit,
    ShardAnswer,
    WordHit,
    hits_of,
)

QUERY = ShardQuery(
    "scenes", "model-a", Modality.IMAGE, Modality.TEXT, 10, [np.eye(1, dtype=np.float32)[0]]
)


def answer(*similarities: float) -> ShardAnswer:
    """Returns one that found one item for each embedding, and one more by words."""
    path = SearchPath(SearchStrategy.EXACT_SCAN)
    words = [np.array([0.1 * number], np.float32) for number in range(len(similarities))]
    return ShardAnswer(
        [Found([RowHit(f"i-{n}", each)], path) for n, each in enumerate(similarities)],
        applied_sequence=3,
        item_count=7,
        keyword_found=KeywordFound(KeywordState.SEARCHED, [WordHit("w", 2.5)], words),
    )


def test_each_search_gets_the_hits_of_its_own_embeddings() -> None:
    """What words found has the similarity to the nearest of these."""
    shared = answer(0.5, 0.9, 0.7)

    first, second = (hits_of(shared.part(*each), QUERY) for each in [(0, 1), (1, 3)])

    assert [hit.item_id for hit in first.hits] == ["i-0"]
    assert [hit.item_id for hit in second.hits] == ["i-1", "i-2"]
    assert [each.keyword_hits[0].hit.similarity for each in (first, second)] == [
        0.0,
        pytest.approx(0.2),
    ]
    assert second.keyword_hits[0].hit.window_number == 1


def test_a_similarity_is_a_cosine_despite_rounding() -> None:
    found = hits_of(answer(1.0000001), QUERY)

    assert found.hits[0].similarity == 1.0


def test_a_shard_that_ignored_the_minimum_is_refused() -> None:
    query = replace(QUERY, minimum_sequence=4)
    with pytest.raises(SequenceNotReached):
        hits_of(answer(0.5), query)


def test_a_match_has_the_precision_of_a_message() -> None:
    match = Match.of(1 / 3, ProbabilityCalibration(1.1, 0.2))

    assert match.logit == float(np.float32(match.logit)) != 1 / 3
    assert match.probability == float(np.float32(match.probability))
