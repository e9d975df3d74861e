"""Guarded stages: what is tried again, and which scores are no scores."""

import math
from typing import Any, cast

import numpy as np
import pytest

from tandem import errors
from tandem.contract.content import TextContent, TextTokens
from tandem.contract.deadline import Deadline
from tandem.search.calls.guarded import GuardedEncoder, GuardedReranker, GuardedShard
from tandem.stages.encoding import EncodePurpose, Encoder
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemsQuery
from tandem.stages.reranking import (
    Candidates,
    GivenCandidates,
    Match,
    Reranker,
    ScoredBatch,
    ScoreQuery,
)
from tandem.stages.shard import Shard
from tests.support.item_store.made_items import FINGERPRINT, text_item


class Leaving:
    """A stage whose every call fails because its service is leaving; notes the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: object, **__: object) -> None:
            self.calls.append(name)
            raise errors.ServiceUnavailable(service="it", why="it is leaving")

        return fail


def soon() -> Deadline:
    return Deadline.after(60.0)


async def test_a_shard_is_read_twice_and_written_once() -> None:
    """Only the caller knows whether a write may be repeated."""
    leaving = Leaving()
    shard = GuardedShard(cast(Shard, leaving), 0)

    for call in (
        shard.get(ItemsQuery("scenes", ["a"]), soon()),
        shard.write(Upsert("scenes", FINGERPRINT, [text_item("a")]), soon()),
        shard.write(Delete("scenes", ["a"]), soon()),
        shard.delete_index("scenes", soon()),
    ):
        with pytest.raises(errors.ServiceUnavailable):
            await call

    assert leaving.calls == ["get", "get", "write", "write", "delete_index"]


async def test_a_query_is_encoded_twice_and_items_once() -> None:
    leaving = Leaving()
    encoder = GuardedEncoder(cast(Encoder, leaving))

    for purpose in (EncodePurpose.QUERY, EncodePurpose.INGEST):
        with pytest.raises(errors.ServiceUnavailable):
            await encoder.encode([TextContent("a")], soon(), purpose=purpose)

    assert leaving.calls == ["encode"] * 3


class Scoring:
    """Scores everything alike."""

    def __init__(self, match: Match) -> None:
        self.match = match

    async def score(self, *_: object) -> ScoredBatch:
        return ScoredBatch([{"a": self.match}])

    async def score_given(self, *_: object) -> tuple[list[Match], ScoredBatch]:
        return [self.match], ScoredBatch([])


@pytest.mark.parametrize("match", [Match(math.nan, None), Match(math.inf, 0.5), Match(1.0, 1.5)])
async def test_scores_that_are_no_numbers_are_refused(match: Match) -> None:
    reranker = GuardedReranker(cast(Reranker, Scoring(match)), 0)
    tokens = TextTokens(np.array([1], np.int32))

    for call in (
        reranker.score(ScoreQuery("scenes", "a"), [Candidates(tokens, ["a"])], soon()),
        reranker.score_given(GivenCandidates("a", tokens, [tokens]), soon()),
    ):
        with pytest.raises(errors.ModelOutputInvalid, match="not a number"):
            await call
