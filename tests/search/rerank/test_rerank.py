"""A rerank starts at the first candidate, and counts as deep as it gets.

Forty items, a degree apart, on two shards; the cross-encoder prefers the reverse order.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tandem import errors
from tandem.contract.content import ImageContent, Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import AdaptiveDepthRule
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.answer_names import RerankStopReason
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.query import Depth, SearchQuery, WeightedPart
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.orchestrator_svc.downstream import (
    DESCRIPTION,
    FINGERPRINT,
    Stack,
    ingest,
    raising,
    stack,
)
from tests.support.orchestrator_svc.scripted import Before

ITEM_COUNT = 40
NAMES = [f"image-{number:02}" for number in range(ITEM_COUNT)]
"""In the bi-encoder's order."""

RULE = AdaptiveDepthRule(
    first_count=4,
    further_count=2,
    intercept=0.0,
    best_logit_weight=-1.0,
    margin_weight=0.0,
    similarity_gap_weight=0.0,
    log_rank_weight=0.0,
    stop_chance=0.01,
)
"""Stops at a best logit over 4.6: chance = sigmoid(-logit)."""


@asynccontextmanager
async def in_tens() -> AsyncIterator[Stack]:
    """Yields a filled stack whose chunks are of at most ten."""
    async with stack(rerank_chunk_pair_count=10) as behind:
        await fill(behind)
        yield behind


@pytest.fixture
async def filled() -> AsyncIterator[Stack]:
    """Chunks of at most ten."""
    async with in_tens() as behind:
        yield behind


async def fill(behind: Stack) -> None:
    """Stores the items, and has the cross-encoder prefer the farthest."""
    items = [IncomingItem(name, ImageContent(str(n).encode())) for n, name in enumerate(NAMES)]
    # Again where a shard's port was another server's a moment ago, whose connection just ended.
    for _ in range(5):
        ingested = await ingest(behind.ingester, items)
        if not any(ingested.outcomes):
            break
    assert not any(ingested.outcomes)
    for shard in behind.shards:
        shard.logits.update({name: float(n) / 10 for n, name in enumerate(NAMES)})


async def search(
    behind: Stack,
    *,
    rerank_k: int = ITEM_COUNT,
    seconds: float = 10.0,
    rerank_required: bool = False,
    adaptive_depth: bool = False,
) -> SearchResult:
    """Searches for what is near 0 degrees."""
    query = SearchQuery(
        parts=(WeightedPart(TextContent("0")),),
        index_id="scenes",
        target_modality=Modality.IMAGE,
        depth=Depth(ITEM_COUNT, rerank_k, ITEM_COUNT),
        rerank_required=rerank_required,
        adaptive_depth=adaptive_depth,
    )
    return await behind.searcher.search(query, Deadline.after(seconds))


def ids(answer: SearchResult) -> list[str]:
    """Returns the items found, best first."""
    return [item.item_id for item in answer.items]


def asked(behind: Stack) -> set[str]:
    """Returns all candidates that any reranker was asked about."""
    return {
        item_id
        for shard in behind.shards
        for request in shard.requests("ScoreCandidates")
        for item_id in request.item_ids  # type: ignore[attr-defined]
    }


def degraded(answer: SearchResult) -> list[str]:
    """Returns the degradations' names."""
    return [each.name for each in answer.degradations]


def scored(answer: SearchResult) -> list[str]:
    """Returns the items that the cross-encoder scored."""
    return [item.item_id for item in answer.items if item.match_logit is not None]


def assert_prefix(answer: SearchResult) -> None:
    """The first `reranked_depth` in the full cross-encoder's order, then the others as retrieved;
    a prefix of the full rerank's candidates, ordered as the full rerank orders them.
    """
    depth = answer.rerank.reranked_depth
    assert ids(answer) == [*reversed(NAMES[:depth]), *NAMES[depth:]]
    assert set(scored(answer)) == set(NAMES[:depth])


def first_on(behind: Stack, shard: int) -> int:
    """Returns how many candidates come before the first that lies on the shard."""
    owners = [behind.shard_map.owner("scenes", name) for name in NAMES]
    return owners.index(shard)


async def test_an_ordinary_search_calls_each_shard_once() -> None:
    """Twenty candidates and time: no round trip more than there must be, from the first on."""
    async with stack() as behind:
        await fill(behind)

        answer = await search(behind, rerank_k=20)

        assert_prefix(answer)
        assert answer.rerank.reranked_depth == 20
        assert answer.rerank.stop is RerankStopReason.COMPLETE
        assert answer.cost.pair_count == 20
        assert [len(shard.requests("ScoreCandidates")) for shard in behind.shards] == [1, 1]
        assert not answer.degradations


async def test_a_deep_rerank_runs_chunk_by_chunk(filled: Stack) -> None:
    """No call has more than the chunk, and together they are all candidates once."""
    answer = await search(filled)

    assert_prefix(answer)
    assert answer.rerank.reranked_depth == ITEM_COUNT
    requests = [r for shard in filled.shards for r in shard.requests("ScoreCandidates")]
    sizes = [len(request.item_ids) for request in requests]  # type: ignore[attr-defined]
    assert max(sizes) <= 10
    assert sum(sizes) == len(asked(filled)) == ITEM_COUNT


@pytest.mark.parametrize("seconds", [0.9, 1.5])
async def test_candidates_past_the_deadline_keep_their_place(seconds: float) -> None:
    async def check(factor: float) -> None:
        async with in_tens() as behind:
            for shard in behind.shards:
                shard.pair_seconds = 0.06 * factor
            start_time = time.monotonic()

            answer = await search(behind, seconds=seconds * factor)

            assert time.monotonic() - start_time < (seconds + 0.3) * factor
            assert 0 < answer.rerank.reranked_depth < ITEM_COUNT
            assert answer.rerank.stop is RerankStopReason.TIME
            assert degraded(answer) == ["RERANK_PARTIAL"]
            assert_prefix(answer)

    await holds_with_longer_times(check)


@pytest.mark.parametrize(
    ("error", "stop"),
    [
        (errors.ServiceUnavailable(service="it", why="gone"), "UNAVAILABLE"),
        (errors.ModelOutputInvalid(model="it", why="NaN"), "OUTPUT_INVALID"),
        (errors.Overloaded(what="rerank serves 64 calls"), "OVERLOADED"),
    ],
)
async def test_without_a_cross_encoder_the_order_stays(
    filled: Stack, error: errors.TandemError, stop: str
) -> None:
    for shard in filled.shards:
        shard.before["ScoreCandidates"] = raising(error)

    answer = await search(filled)

    assert ids(answer) == NAMES
    assert answer.rerank.stop.name == stop
    assert answer.rerank.reranked_depth == 0
    assert degraded(answer) == ["RERANK_SKIPPED"]


@pytest.mark.parametrize(
    "error", [errors.TokensInvalid(why="x"), errors.ModelMismatch(request="a", index="b")]
)
async def test_errors_of_the_caller_are_raised(filled: Stack, error: errors.TandemError) -> None:
    """It is not hidden by an order that the caller did not request."""
    filled.shards[0].before["ScoreCandidates"] = raising(error)

    with pytest.raises(type(error)):
        await search(filled)


async def test_after_a_shards_failure_candidates_before_its_first_count(
    filled: Stack,
) -> None:
    """Otherwise its items would rank below the others' for no reason of their own."""
    filled.shards[1].before["ScoreCandidates"] = raising(
        errors.ServiceUnavailable(service="rerank-1", why="gone")
    )

    answer = await search(filled)

    assert answer.rerank.reranked_depth == first_on(filled, 1)
    assert answer.rerank.stop is RerankStopReason.UNAVAILABLE
    assert_prefix(answer)


async def test_a_chunk_that_fails_leaves_those_before_it(filled: Stack) -> None:
    for shard in filled.shards:
        shard.before["ScoreCandidates"] = _after(
            lambda: len(asked(filled)) > 20,
            raising(errors.ModelUnavailable(model="it", why="gone")),
        )

    answer = await search(filled)

    assert 10 <= answer.rerank.reranked_depth < ITEM_COUNT
    assert answer.rerank.stop is RerankStopReason.UNAVAILABLE
    assert degraded(answer) == ["RERANK_PARTIAL"]
    assert_prefix(answer)


async def test_candidates_that_are_gone_are_counted(filled: Stack) -> None:
    """They rank below the scored ones, and the answer is flagged."""
    for shard in filled.shards:
        shard.logits.pop("image-03")

    answer = await search(filled)

    assert answer.rerank.stop is RerankStopReason.COMPLETE
    assert answer.rerank.missing_count == 1
    assert ids(answer)[-1] == "image-03"
    assert degraded(answer) == ["TOKENS_MISSING"]


async def test_a_rerank_that_is_required_is_refused_by_its_cause(filled: Stack) -> None:
    """What it lacked is named; a full rerank is answered."""
    assert (await search(filled, rerank_required=True)).rerank.reranked_depth == ITEM_COUNT
    for shard in filled.shards:
        shard.before["ScoreCandidates"] = raising(errors.Overloaded(what="full"))
    with pytest.raises(errors.RerankUnavailable, match="OVERLOADED") as caught:
        await search(filled, rerank_required=True)
    assert caught.value.metadata == {"stop": "OVERLOADED", "reranked_depth": "0"}


async def test_a_rerank_that_is_required_and_late_is_a_deadline_exceeded() -> None:
    async def check(factor: float) -> None:
        async with in_tens() as behind:
            for shard in behind.shards:
                shard.pair_seconds = 1.0 * factor
            with pytest.raises(errors.DeadlineExceeded, match="the rerank, after"):
                await search(behind, rerank_required=True, seconds=0.7 * factor)

    await holds_with_longer_times(check)


@pytest.mark.parametrize(("best", "depth"), [(3.0, ITEM_COUNT), (9.0, 4)])
async def test_adaptive_depth_stops_by_the_models_rule(
    filled: Stack, best: float, depth: int
) -> None:
    """It stops at the first look if the best so far is sure enough, else never."""
    describe(filled, RULE)
    for shard in filled.shards:
        shard.logits["image-01"] = best

    answer = await search(filled, adaptive_depth=True)

    assert answer.rerank.reranked_depth == depth
    assert answer.rerank.stop is (
        RerankStopReason.ADAPTIVE if depth == 4 else RerankStopReason.COMPLETE
    )
    assert not answer.degradations
    assert len(asked(filled)) == depth
    assert ids(answer)[0] == ("image-01" if depth == 4 else "image-39")


async def test_adaptive_depth_looks_again_after_each_further_count(filled: Stack) -> None:
    """The sure candidate is the sixth, which the second look finds."""
    describe(filled, RULE)
    for shard in filled.shards:
        shard.logits["image-05"] = 9.0

    answer = await search(filled, adaptive_depth=True, rerank_required=True)

    assert answer.rerank.reranked_depth == 6
    assert ids(answer)[0] == "image-05"


async def test_the_rule_is_requested_once(filled: Stack) -> None:
    """One rerank_svc answers, and the rule is cached."""
    describe(filled, RULE)

    for _ in range(3):
        await search(filled, adaptive_depth=True)

    assert sum(len(shard.requests("DescribeModel")) for shard in filled.shards) == 1


@pytest.mark.parametrize("fingerprint", [None, "model-b"])
async def test_without_a_rule_a_search_is_reranked_in_full(
    filled: Stack, fingerprint: str | None
) -> None:
    """No rerank_svc describes a rule, or it is another model's."""
    if fingerprint:
        describe(filled, RULE, fingerprint)
    for shard in filled.shards:
        shard.logits["image-01"] = 9.0

    answer = await search(filled, adaptive_depth=True)

    assert answer.rerank.reranked_depth == ITEM_COUNT
    assert answer.rerank.stop is RerankStopReason.COMPLETE


async def test_candidates_are_scored_by_the_version_that_encoded_the_query(filled: Stack) -> None:
    """Every chunk on every shard is, though the shards serve other versions by now; the answer says
    so.
    """
    filled.encoder.model_version = 7
    for number, shard in enumerate(filled.shards):
        shard.model_version = 8 + number

    answer = await search(filled)

    requests = [r for shard in filled.shards for r in shard.requests("ScoreCandidates")]
    assert {request.model_version for request in requests} == {7}  # type: ignore[attr-defined]
    assert answer.model_version == 7
    assert answer.rerank.stop is RerankStopReason.COMPLETE


async def test_the_first_answer_chooses_the_default_method(filled: Stack) -> None:
    """The encoder names no version and both shards serve one: later chunks request that."""
    for shard in filled.shards:
        shard.model_version = 3

    answer = await search(filled)

    requests = [r for shard in filled.shards for r in shard.requests("ScoreCandidates")]
    assert {request.model_version for request in requests} == {0, 3}  # type: ignore[attr-defined]
    assert answer.model_version == 3
    assert answer.rerank.stop is RerankStopReason.COMPLETE


async def test_scores_of_two_versions_make_no_order(filled: Stack) -> None:
    """The shards serve different versions and the encoder names none: one shard's scores count."""
    for number, shard in enumerate(filled.shards):
        shard.model_version = 3 + number

    answer = await search(filled)

    versions = {
        filled.shards[filled.shard_map.owner("scenes", item_id)].model_version
        for item_id in scored(answer)
    }
    assert answer.rerank.stop is RerankStopReason.UNAVAILABLE
    assert versions <= {answer.model_version}
    assert_prefix(answer)
    assert degraded(answer)


@pytest.mark.parametrize(("version", "depth"), [(2, ITEM_COUNT), (1, 6)])
async def test_a_rule_is_of_one_version(filled: Stack, version: int, depth: int) -> None:
    """The rule that the rerank_svc describes is not applied to searches by another version."""
    describe(filled, RULE)  # of version 1
    filled.encoder.model_version = version
    for shard in filled.shards:
        shard.logits["image-05"] = 9.0

    answer = await search(filled, adaptive_depth=True)

    assert answer.rerank.reranked_depth == depth


async def test_a_cancelled_search_requests_no_further_chunk(filled: Stack) -> None:
    for shard in filled.shards:
        shard.pair_seconds = 1.0
    searching = asyncio.create_task(search(filled))
    async with asyncio.timeout(60):
        while len(asked(filled)) < 10:  # noqa: ASYNC110 (the fakes have no events to wait for)
            await asyncio.sleep(0.005)
    count = len(asked(filled))

    searching.cancel()
    await asyncio.wait([searching])
    await asyncio.sleep(0.3)

    assert searching.cancelled()
    assert len(asked(filled)) == count < ITEM_COUNT


def describe(behind: Stack, rule: AdaptiveDepthRule | None, fingerprint: str = FINGERPRINT) -> None:
    """Has every reranker serve a model with the rule."""
    for shard in behind.shards:
        shard.description = replace(DESCRIPTION, fingerprint=fingerprint, adaptive_depth_rule=rule)


def _after(is_due: Callable[[], bool], before: Before) -> Before:
    async def later(request: object) -> None:
        if is_due():
            await before(request)

    return later
