"""Contents of many items, by bytes: an answer has a limit, and says how to continue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
import pytest

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.contract.limits import MAX_MESSAGE_BYTES
from tandem.search.contents import content_budget, item_reads
from tandem.search.contents.content_budget import MAX_ANSWER_CONTENT_BYTES as MAX_ROOM_BYTES
from tandem.search.contents.content_budget import AnswerBudget, ContentBudget, ContentHold
from tandem.search.cursors.cursor import MAX_CURSOR_BYTES, seal_cursor, unseal_cursor
from tandem.v1 import error_reason_pb2, search_cursor_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.orchestrator_svc import downstream
from tests.support.orchestrator_svc.downstream import Stack, door, stack

TIMEOUT_SECONDS = 60
ITEM_COUNT = 10
# Of ten, seven fit into an answer and eight do not; a thousandth of what there is room for.
PICTURE_BYTES = 6 * 2**10
LIMIT_BYTES = 48 * 2**10


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_budget, "MAX_ANSWER_CONTENT_BYTES", LIMIT_BYTES)


@pytest.fixture(name="behind")
async def _behind() -> AsyncIterator[Stack]:
    """Two shards that together have ten pictures, and give two of them at once."""
    async with stack() as behind:
        async with door(behind) as stub:
            items = [
                index_pb.Item(item_id=f"item-{n}", content={"image": f"{n} ".encode()})
                for n in range(ITEM_COUNT)
            ]
            async for _ in stub.IngestItems(
                iter([pb.IngestItemsRequest(index_id="scenes", items=items)])
            ):
                pass
        for shard in behind.shards:
            shard.max_get_count = 2
            for item in shard.items["scenes"].values():
                item.content.image = item.content.image.ljust(PICTURE_BYTES)
        yield behind


@pytest.fixture(name="stub")
async def _stub(behind: Stack) -> AsyncIterator[SearchServiceStub]:
    async with door(behind) as stub:
        yield stub


def asked(return_n: int, **fields: object) -> pb.SearchItemsRequest:
    """Returns a search for so many of the pictures with their contents."""
    usual = {"query": {"text": "1"}, "rerank_disabled": True, "content_included": True}
    return pb.SearchItemsRequest(index_id="scenes", return_n=return_n, **(usual | fields))  # type: ignore[arg-type]


async def refusal(call: grpc.aio.UnaryUnaryCall) -> errors.TandemError:
    """Returns the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return error_from_rpc(caught.value, "the orchestrator")


async def test_contents_that_fit_are_returned_over_any_number_of_calls(
    behind: Stack, stub: SearchServiceStub
) -> None:
    """Each item appears once, in its place, with its own content."""
    answer = await stub.SearchItems(asked(7), timeout=TIMEOUT_SECONDS)

    assert len({item.item_id for item in answer.items}) == 7
    for item in answer.items:
        assert len(item.content.image) == PICTURE_BYTES
        assert item.content.image.startswith(item.item_id.removeprefix("item-").encode() + b" ")
    sizes = [
        len(request.item_ids)  # type: ignore[attr-defined]
        for shard in behind.shards
        for request in shard.requests("GetItems")
    ]
    assert len(sizes) >= 4


async def test_contents_that_do_not_fit_are_refused_with_a_remedy(
    stub: SearchServiceStub,
) -> None:
    """For a single search, a page and a stream; and each remedy that the error names works."""
    error = await refusal(stub.SearchItems(asked(8), timeout=TIMEOUT_SECONDS))
    assert type(error) is errors.AnswerTooLarge
    assert error.metadata == {"limit": str(LIMIT_BYTES)}
    for way in ("return_n", "next_cursor", "content_included"):
        assert way in error.message

    bare = await stub.SearchItems(asked(8, content_included=False), timeout=TIMEOUT_SECONDS)
    assert len(bare.items) == 8
    first = await stub.SearchItems(asked(1), timeout=TIMEOUT_SECONDS)
    page = pb.SearchItemsRequest(
        index_id="scenes", cursor=first.next_cursor, content_included=True, return_n=9
    )
    error = await refusal(stub.SearchItems(page, timeout=TIMEOUT_SECONDS))
    assert type(error) is errors.AnswerTooLarge
    page.return_n = 5
    second = await stub.SearchItems(page, timeout=TIMEOUT_SECONDS)
    assert [len(item.content.image) for item in second.items] == [PICTURE_BYTES] * 5

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.StreamSearchItems(pb.StreamSearchItemsRequest(search=asked(8))):
            pass
    assert type(error_from_rpc(caught.value, "it")) is errors.AnswerTooLarge


async def test_each_answer_of_a_stream_has_its_own_room(stub: SearchServiceStub) -> None:
    """They are two messages; contents of the first are not read again for the second."""
    answers = [
        response.answer
        async for response in stub.StreamSearchItems(pb.StreamSearchItemsRequest(search=asked(6)))
    ]

    assert [len(answer.items) for answer in answers] == [6, 6]
    assert all(item.content.image for answer in answers for item in answer.items)


async def test_searches_of_a_batch_share_the_room_of_its_one_message(
    stub: SearchServiceStub,
) -> None:
    """Those that find no room are refused alone."""
    request = pb.BatchSearchItemsRequest(searches=[asked(5), asked(5), asked(2), asked(9)])

    response = await stub.BatchSearchItems(request, timeout=TIMEOUT_SECONDS)

    assert response.ByteSize() < 2 * LIMIT_BYTES
    reasons = [result.error.reason for result in response.results]
    too_large = errors_pb_reason("ANSWER_TOO_LARGE")
    assert set(reasons) == {0, too_large}
    assert reasons[3] == too_large


async def test_searches_of_a_batch_that_fit_alone_do_not_all_fail(stub: SearchServiceStub) -> None:
    """One reads its contents after the other: side by side, each could take a part of the room."""
    request = pb.BatchSearchItemsRequest(searches=[asked(7)] * 6)

    response = await stub.BatchSearchItems(request, timeout=TIMEOUT_SECONDS)

    found = [len(result.response.items) for result in response.results]
    assert sorted(found) == [0, 0, 0, 0, 0, 7]


async def test_a_cursor_that_names_one_item_many_times_reads_nothing(
    behind: Stack, stub: SearchServiceStub
) -> None:
    """119 bytes took 7 GiB of a shard."""
    first = await stub.SearchItems(asked(1), timeout=TIMEOUT_SECONDS)
    held = search_cursor_pb2.SearchCursor.FromString(unseal_cursor(first.next_cursor))
    for column in ("item_ids", "similarities", "match_logits", "match_probabilities"):
        values = getattr(held, column)
        values[:] = [values[0]] * 200
    for column in ("retrieve_ranks", "modalities", "scores"):
        values = getattr(held, column)
        values[:] = [values[0]] * 200
    before = [len(shard.requests("GetItems")) for shard in behind.shards]

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.SearchItems(
            pb.SearchItemsRequest(
                index_id="scenes",
                cursor=seal_cursor(held.SerializeToString()),
                content_included=True,
                return_n=200,
            ),
            timeout=TIMEOUT_SECONDS,
        )

    assert type(error_from_rpc(caught.value, "it")) is errors.CursorInvalid
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [len(shard.requests("GetItems")) for shard in behind.shards] == before


@pytest.fixture(name="budget")
def _budget(monkeypatch: pytest.MonkeyPatch) -> ContentBudget:
    """What all answers share: 100 kB, of which each reserves 10 before it knows."""
    budget = ContentBudget(100_000)
    monkeypatch.setattr(downstream, "ContentBudget", lambda: budget)
    monkeypatch.setattr(item_reads, "_FIRST_BYTES", 10_000)
    monkeypatch.setattr(item_reads, "_FURTHER_BYTES", 10_000)
    return budget


async def test_room_for_contents_is_held_until_their_answer_is_sent(
    behind: Stack, budget: ContentBudget
) -> None:
    """They are released however the call ends; an unused reservation is released at once."""
    async with door(behind) as stub:
        answer = await stub.SearchItems(asked(3), timeout=TIMEOUT_SECONDS)
        assert len(answer.items) == 3
        await until(lambda: budget.held_bytes == 0)

        await refusal(stub.SearchItems(asked(8), timeout=TIMEOUT_SECONDS))
        await until(lambda: budget.held_bytes == 0)

        for shard in behind.shards:
            shard.before["ScoreCandidates"] = never
        streamed = asked(5, rerank_disabled=False)
        stream = stub.StreamSearchItems(pb.StreamSearchItemsRequest(search=streamed))
        assert len((await stream.read()).answer.items) == 5
        await until(lambda: 5 * PICTURE_BYTES <= budget.held_bytes < 6 * PICTURE_BYTES)
        stream.cancel()
        await until(lambda: budget.held_bytes == 0)

        batch = await stub.BatchSearchItems(
            pb.BatchSearchItemsRequest(searches=[asked(2), asked(2)]), timeout=TIMEOUT_SECONDS
        )
        assert [len(result.response.items) for result in batch.results] == [2, 2]
        await until(lambda: budget.held_bytes == 0)


async def test_answers_that_are_not_sent_yet_leave_others_less_room(
    behind: Stack, budget: ContentBudget
) -> None:
    """An answer without room is refused as overload, which may be retried."""
    other = ContentHold(budget)
    await other.take(95_000)
    async with door(behind) as stub:
        error = await refusal(stub.SearchItems(asked(3), timeout=TIMEOUT_SECONDS))
        assert type(error) is errors.Overloaded
        bare = await stub.SearchItems(asked(3, content_included=False), timeout=TIMEOUT_SECONDS)
        assert len(bare.items) == 3

        waiting = asyncio.ensure_future(stub.SearchItems(asked(3), timeout=TIMEOUT_SECONDS))
        other.release()
        assert len((await waiting).items) == 3
        await until(lambda: budget.held_bytes == 0)


async def never(request: object) -> None:
    """Has a call wait until it is cancelled."""
    await asyncio.Event().wait()


async def until(holds: Callable[[], bool]) -> None:
    """Waits until it holds, which nothing tells."""
    for _ in range(TIMEOUT_SECONDS * 200):
        if holds():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never held")


def test_an_answer_has_room_for_its_contents_and_its_cursor() -> None:
    """In a message, with 8 MiB for ids, scores and explanations."""
    assert MAX_ROOM_BYTES + MAX_CURSOR_BYTES + 8 * 2**20 <= MAX_MESSAGE_BYTES


async def test_a_failed_answer_releases_its_room() -> None:
    """Otherwise one search of a batch could take the room of all others."""
    room = AnswerBudget(10)

    async def take(*byte_counts: int) -> None:
        async with room.taking() as taking:
            for byte_count in byte_counts:
                taking.take(byte_count)

    with pytest.raises(errors.AnswerTooLarge):
        await take(8, 3)
    await take(6, 4)
    with pytest.raises(errors.AnswerTooLarge):
        await take(1)


def errors_pb_reason(name: str) -> int:
    """Returns the reason's number."""
    return int(error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{name}"))
