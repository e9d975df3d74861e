"""Searches that are answered twice, and several that are answered in one call."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tandem import errors
from tandem.contract.limits import MAX_EMBEDDING_COUNT
from tandem.search.calls import batching
from tandem.search.calls.batching import answer_share
from tandem.search.calls.call_batcher import CallBatcher
from tandem.v1 import content_pb2, error_reason_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.orchestrator_svc.downstream import FakeShard, Stack, door, raising, stack

TIMEOUT_SECONDS = 20
NAMES = [f"image-{number:02}" for number in range(30)]


@pytest.fixture
async def filled() -> AsyncIterator[Stack]:
    """Thirty pictures a degree apart, of which the cross-encoder prefers the farthest."""
    async with stack() as behind:
        items = [
            index_pb.Item(item_id=name, content=content_pb2.Content(image=str(n).encode()))
            for n, name in enumerate(NAMES)
        ]
        async with door(behind) as stub:
            request = pb.IngestItemsRequest(index_id="scenes", items=items)
            assert [each async for each in stub.IngestItems(iter([request]))]
        behind.encoder.calls.clear()
        for shard in behind.shards:
            shard.logits.update({name: float(n) for n, name in enumerate(NAMES)})
            shard.calls.clear()
        yield behind


def search(text: str = "0", **fields: Any) -> pb.SearchItemsRequest:
    """Returns a search for pictures near the angle."""
    request = {"index_id": "scenes", "query": content_pb2.Content(text=text)} | fields
    return pb.SearchItemsRequest(**request)  # type: ignore[arg-type]


def untimed(response: pb.SearchItemsResponse) -> pb.SearchItemsResponse:
    """Returns the answer without what differs from one run to the next."""
    copy = pb.SearchItemsResponse()
    copy.CopyFrom(response)
    copy.ClearField("durations")
    copy.ClearField("next_cursor")
    return copy


async def answers(
    stub: SearchServiceStub, request: pb.SearchItemsRequest
) -> list[pb.StreamSearchItemsResponse]:
    """Returns what a streamed search answers."""
    call = stub.StreamSearchItems(
        pb.StreamSearchItemsRequest(search=request), timeout=TIMEOUT_SECONDS
    )
    return [each async for each in call]


@pytest.mark.parametrize("fields", [{"content_included": True}, {"rerank_disabled": True}])
async def test_a_stream_ends_with_the_answer_of_a_search(
    filled: Stack, fields: dict[str, Any]
) -> None:
    async with door(filled) as stub:
        single = await stub.SearchItems(search(**fields), timeout=TIMEOUT_SECONDS)
        first, second = await answers(stub, search(**fields))

    assert (first.phase, second.phase) == (pb.SEARCH_PHASE_RETRIEVED, pb.SEARCH_PHASE_FINAL)
    assert untimed(second.answer) == untimed(single)
    retrieved = [item.item_id for item in first.answer.items]
    assert retrieved == NAMES[: len(single.items)]
    assert not first.answer.degradations
    assert not first.answer.next_cursor
    for item in first.answer.items:
        assert not item.HasField("match_logit")
        assert item.HasField("content") == bool(fields.get("content_included"))


async def test_the_first_answer_does_not_wait_for_the_cross_encoder(filled: Stack) -> None:
    """It is read while the rerank stalls; the second follows after that."""
    may_score = asyncio.Event()

    async def wait(request: object) -> None:
        await may_score.wait()

    for shard in filled.shards:
        shard.before["ScoreCandidates"] = wait
    async with door(filled) as stub:
        call = stub.StreamSearchItems(
            pb.StreamSearchItemsRequest(search=search()), timeout=TIMEOUT_SECONDS
        )
        async with asyncio.timeout(60):
            first = await call.read()
        may_score.set()
        second = await call.read()

    assert first.phase == pb.SEARCH_PHASE_RETRIEVED
    assert second.answer.rerank.stop == pb.RERANK_STOP_COMPLETE


async def test_an_abandoned_stream_scores_no_further(filled: Stack) -> None:
    ended = asyncio.Event()

    async def stall(request: object) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    for shard in filled.shards:
        shard.before["ScoreCandidates"] = stall
    async with door(filled) as stub:
        call = stub.StreamSearchItems(
            pb.StreamSearchItemsRequest(search=search()), timeout=TIMEOUT_SECONDS
        )
        await call.read()
        async with asyncio.timeout(60):
            while not any(shard.requests("ScoreCandidates") for shard in filled.shards):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        call.cancel()

        async with asyncio.timeout(60):
            await ended.wait()


async def test_a_stream_of_a_cursor_is_its_page(filled: Stack) -> None:
    async with door(filled) as stub:
        single = await stub.SearchItems(search(return_n=5), timeout=TIMEOUT_SECONDS)
        request = pb.SearchItemsRequest(index_id="scenes", cursor=single.next_cursor)

        [only] = await answers(stub, request)

    assert only.phase == pb.SEARCH_PHASE_FINAL
    assert [item.final_rank for item in only.answer.items] == [6, 7, 8, 9, 10]


async def batch(
    stub: SearchServiceStub, *searches: pb.SearchItemsRequest, seconds: float = TIMEOUT_SECONDS
) -> list[pb.BatchSearchResult]:
    """Returns what became of each search."""
    request = pb.BatchSearchItemsRequest(searches=searches)
    return list((await stub.BatchSearchItems(request, timeout=seconds)).results)


async def test_a_batch_answers_as_its_searches_would(filled: Stack) -> None:
    searches = [search(str(angle), return_n=4) for angle in (0, 3, 8, 20)]
    async with door(filled) as stub:
        singles = [await stub.SearchItems(each, timeout=TIMEOUT_SECONDS) for each in searches]
        for service in (filled.encoder, *filled.shards):
            service.calls.clear()

        results = await batch(stub, *searches)

    assert [untimed(result.response) for result in results] == [untimed(each) for each in singles]
    assert sum(result.response.cost.pair_count for result in results) == 4 * 20
    assert len(filled.encoder.requests("EncodeContents")) == 1
    for shard in filled.shards:
        assert len(shard.requests("SearchEmbeddings")) == 1
        assert len(shard.requests("ScoreBatch")) == 1
        assert not shard.requests("ScoreCandidates")


async def test_different_searches_are_retrieved_separately(filled: Stack) -> None:
    """Another depth, another target. They are scored together if they get there together."""
    async with door(filled) as stub:
        await batch(stub, search(), search("9"))
        for shard in filled.shards:
            shard.calls.clear()

        results = await batch(
            stub,
            search(retrieve_k=25),
            search("9"),
            search("5", target_modality=content_pb2.MODALITY_TEXT),
        )

    assert [result.response.rerank.reranked_depth for result in results] == [20, 20, 0]
    for shard in filled.shards:
        assert len(shard.requests("SearchEmbeddings")) == 3
        scored = [*shard.requests("ScoreBatch"), *shard.requests("ScoreCandidates")]
        assert 1 <= len(scored) <= 2


async def test_a_search_of_a_batch_fails_alone(filled: Stack) -> None:
    filled.encoder.refused["7"] = errors.TextTooLong(got=99, limit=64, unit="tokens")
    async with door(filled) as stub:
        results = await batch(
            stub,
            search(),
            search("7"),
            search(retrieve_k=2000),
            search(index_id="nowhere"),
            search(cursor=b"x"),
            search("3"),
        )

    reasons = [
        error_reason_pb2.ErrorReason.Name(result.error.reason).removeprefix("ERROR_REASON_")
        if result.HasField("error")
        else None
        for result in results
    ]
    assert reasons == [
        None,
        "TEXT_TOO_LONG",
        "K_OUT_OF_RANGE",
        "INDEX_NOT_FOUND",
        "CURSOR_INVALID",
        None,
    ]
    assert len(results[0].response.items) == len(results[5].response.items) == 10


async def test_a_query_that_cannot_be_scored_does_not_cost_the_others_theirs(
    filled: Stack,
) -> None:
    """The rerank_svc reports an error for one of them."""
    error = error_reason_pb2.ItemError(
        reason=error_reason_pb2.ERROR_REASON_TOKENS_INVALID, message="too long"
    )
    async with door(filled) as stub:
        await batch(stub, search(), search("9"))
        filled.shards[0].query_errors[1] = error

        results = await batch(stub, search(), search("9"), search("12"))

    assert [result.WhichOneof("outcome") for result in results].count("error") == 1


async def test_a_batch_without_a_cross_encoder_is_flagged_search_by_search(filled: Stack) -> None:
    """A batch without an encoder fails search by search."""
    for shard in filled.shards:
        shard.before["ScoreBatch"] = raising(errors.ModelUnavailable(model="it", why="gone"))
    async with door(filled) as stub:
        for result in await batch(stub, search(), search("9")):
            assert list(result.response.degradations) == [pb.DEGRADATION_RERANK_SKIPPED]

        filled.encoder.before["EncodeContents"] = raising(
            errors.ModelUnavailable(model="it", why="gone")
        )
        for result in await batch(stub, search(), search("9")):
            assert result.error.reason == error_reason_pb2.ERROR_REASON_MODEL_UNAVAILABLE


async def test_a_batch_ends_by_its_deadline(filled: Stack) -> None:
    async def check(factor: float) -> None:
        for shard in filled.shards:
            shard.pair_seconds = 0.1 * factor
        async with door(filled) as stub:
            results = await batch(
                stub, *[search(str(angle)) for angle in range(8)], seconds=2.0 * factor
            )

        for result in results:
            assert not result.HasField("error")
            assert result.response.rerank.reranked_depth < 20

    async with door(filled) as stub:
        await batch(stub, *[search(str(angle)) for angle in range(8)])
    await holds_with_longer_times(check)


@pytest.mark.parametrize("count", [0, 65])
async def test_a_batch_of_no_or_too_many_searches_is_refused(filled: Stack, count: int) -> None:
    """By name; 64 are taken."""
    async with door(filled) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await batch(stub, *[search()] * count)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

        assert len(await batch(stub, *[search()] * 64)) == 64


async def test_the_largest_batch_is_scored_in_calls_within_the_limits(filled: Stack) -> None:
    """64 searches of 30 candidates: no call has more than 1,024 pairs or 64 queries."""
    async with door(filled) as stub:
        results = await batch(stub, *[search(rerank_k=30)] * 64)

    assert all(result.response.rerank.reranked_depth == 30 for result in results)
    for shard in filled.shards:
        for request in shard.requests("ScoreBatch"):
            sizes = [len(query.item_ids) for query in request.queries]  # type: ignore[attr-defined]
            assert len(sizes) <= 64
            assert sum(sizes) <= 1_024


def query_counts(shard: FakeShard) -> list[int]:
    """Return the number of queries in each search call of a shard."""
    return [len(request.queries) for request in shard.requests("SearchEmbeddings")]  # type: ignore[attr-defined]


async def test_hits_with_embeddings_are_requested_up_to_the_message_limit(
    filled: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 searches of 1,000 hits with 384 values each would need an answer of 118 MB."""
    assert answer_share(384, 20) == 1
    for dimension, retrieve_k in ((384, 1000), (1024, 1000), (384, 500)):
        count = MAX_EMBEDDING_COUNT // answer_share(dimension, retrieve_k)
        assert 1 <= count < MAX_EMBEDDING_COUNT
        assert count * retrieve_k * (4 * dimension + 256 + 32) <= 48 * 2**20
    # A megabyte has room for three times 1,000 hits with the two values of these.
    monkeypatch.setattr(batching, "_MAX_ANSWER_BYTES", 2**20)
    # All 8 are joined, however late one of them is.
    defaults = {"max_request_count": 64, "wait_seconds": 60.0}
    monkeypatch.setattr(CallBatcher.__init__, "__kwdefaults__", defaults)
    diverse: dict[str, Any] = {"retrieve_k": 1000, "diversity": {"relevance_weight": 0.5}}

    async with door(filled) as stub:
        plain = await batch(stub, *[search(retrieve_k=1000)] * 8)
        plain_sizes = [query_counts(shard) for shard in filled.shards]
        for shard in filled.shards:
            shard.calls.clear()
        results = await batch(stub, *[search(**diverse)] * 8)

    assert all(result.response.items for result in (*plain, *results))
    assert plain_sizes == [[8]] * len(filled.shards)
    for sizes in map(query_counts, filled.shards):
        assert sorted(sizes) == [2, 3, 3]
