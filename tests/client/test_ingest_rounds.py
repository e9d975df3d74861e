"""Items that a busy server refused: sent again in order, for a time, and told to the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tandem import errors
from tandem.client import (
    NO_RETRIES,
    AsyncClient,
    Client,
    IngestOutcome,
    IngestProgress,
    Item,
    RetryPolicy,
)
from tandem.client.calls.retries import Retries
from tandem.client.ingest.rounds import IngestRounds
from tandem.contract.search.answer_wire import item_error_to_proto
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import IngestBatch, all_stored, search_server

SOON = RetryPolicy(initial_backoff_seconds=0.001, max_backoff_seconds=0.002)
DOWN = errors.ModelUnavailable(model="image_encoder", why="it restarts")
ITEMS = [Item(f"{number:03}", text="a cup") for number in range(40)]


async def threaded(address: str, policy: RetryPolicy, **options: Any) -> list[IngestOutcome]:
    def outcomes() -> list[IngestOutcome]:
        with Client(address, retries=policy) as client:
            return list(client.ingest(index_id="s", **options))

    return await asyncio.to_thread(outcomes)


async def awaited(address: str, policy: RetryPolicy, **options: Any) -> list[IngestOutcome]:
    async with AsyncClient(address, retries=policy) as client:
        return [each async for each in client.ingest(index_id="s", **options)]


both = pytest.mark.parametrize("ingest", [threaded, awaited])


def refusing(is_refused: Callable[[str, int], bool]) -> IngestBatch:
    """Returns a server's batch that refuses an item by its id and how often it came before."""
    seen: dict[str, int] = {}

    async def batch(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        response = await all_stored(request)
        for result in response.results:
            count = seen.get(result.item_id, 0)
            seen[result.item_id] = count + 1
            if is_refused(result.item_id, count):
                result.error.CopyFrom(item_error_to_proto(DOWN))
        return response

    return batch


@both
async def test_what_a_restarting_model_refused_is_sent_again_and_stored(ingest: Any) -> None:
    """Each item has one outcome, and the caller is told of those that wait."""
    told: list[IngestProgress] = []

    async with search_server(ingest=refusing(lambda _, count: count < 3)) as (address, service):
        outcomes = await ingest(
            address, SOON, items=iter(ITEMS), batch_item_count=8, progress=told.append
        )

    assert {each.error for each in outcomes} == {None}
    assert sorted(each.item_id for each in outcomes) == [item.item_id for item in ITEMS]
    assert max(each.waiting_count for each in told) >= 8
    assert told[-1] == IngestProgress(40, 0, None, 0)
    assert len({metadata["x-request-id"] for metadata in service.metadata}) > 3


@both
async def test_what_cannot_pass_is_refused_at_once_between_the_others(ingest: Any) -> None:
    """A bad item does not wait for a busy one, nor the busy one for the bad."""
    items = [Item("a", text="a cup"), ("", "no id"), Item("c", text="a cup")]
    is_refused = refusing(lambda item_id, count: item_id == "a" and count == 0)
    async with search_server(ingest=is_refused) as (address, _):
        outcomes = await ingest(address, SOON, items=items, batch_item_count=8)

    assert [(each.item_id, each.error is None) for each in outcomes] == [
        ("", False),
        ("c", True),
        ("a", True),
    ]


@both
async def test_a_model_that_stays_away_ends_the_waiting_and_not_the_ingest(ingest: Any) -> None:
    """The policy says how long; then each item has its error, and the others are stored."""
    short = RetryPolicy(
        initial_backoff_seconds=0.01, max_backoff_seconds=0.02, ingest_wait_seconds=0.2
    )
    odd = refusing(lambda item_id, _: int(item_id) % 2 == 1)
    async with search_server(ingest=odd) as (address, _):
        async with asyncio.timeout(20):
            outcomes = await ingest(address, short, items=ITEMS, batch_item_count=4)

    refused = [each for each in outcomes if each.error is not None]
    assert sorted(each.item_id for each in refused) == [f"{n:03}" for n in range(1, 40, 2)]
    assert {type(each.error) for each in refused} == {errors.ModelUnavailable}
    assert len(outcomes) == 40


@both
@pytest.mark.parametrize(("policy", "options"), [(NO_RETRIES, {}), (SOON, {"request_id": "mine"})])
async def test_nothing_is_sent_again_where_that_is_switched_off(
    ingest: Any, policy: RetryPolicy, options: dict[str, str]
) -> None:
    async with search_server(ingest=refusing(lambda _, count: count == 0)) as (address, service):
        outcomes = await ingest(address, policy, items=ITEMS[:4], **options)

    assert [type(each.error) for each in outcomes] == [errors.ModelUnavailable] * 4
    assert len(service.requests) == 1


def rounds_of(items: Iterable[Item]) -> IngestRounds:
    return IngestRounds(items, Retries(RetryPolicy(), draw=lambda: 1.0), 8, is_repeatable=True)


def test_an_item_does_not_replace_a_later_one_of_its_id() -> None:
    """The first waits while the second is stored: sent again, it would win."""
    rounds = rounds_of([Item("a", text="old"), Item("a", text="new"), Item("b", text="x")])
    items = iter(rounds)
    next(items)
    next(items)

    kept = rounds.final([IngestOutcome("a", DOWN), IngestOutcome("a", None)])

    assert kept == [IngestOutcome("a", DOWN), IngestOutcome("a", None)]
    assert (list(items), rounds.waiting_count) == ([], 0)
    assert rounds.delay_seconds() is not None
    assert [item.item_id for item in rounds if isinstance(item, Item)] == ["b"]
    assert rounds.delay_seconds() is None


def test_the_wait_is_the_longer_of_the_servers_and_the_backoff() -> None:
    """The server's is the same each time, however long it is busy."""
    busy = errors.Overloaded(what="the encoder", retry_delay_seconds=0.15)
    rounds = rounds_of([Item("a", text="x")])
    delays = []
    for _ in range(3):
        list(rounds)
        assert rounds.final([IngestOutcome("a", busy)]) == []
        delays.append(rounds.delay_seconds())

    assert delays == [pytest.approx(each) for each in (0.15, 0.2, 0.4)]


@both
async def test_a_batch_that_takes_the_server_too_long_is_sent_in_parts(ingest: Any) -> None:
    """As with a large model on a busy machine: the same batch again would be as late."""

    async def slow(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        response = await all_stored(request)
        for result in response.results:
            if len(request.items) > 3:
                late = errors.DeadlineExceeded(what="the inference of image_encoder")
                result.error.CopyFrom(item_error_to_proto(late))
        return response

    async with search_server(ingest=slow) as (address, service):
        outcomes = await ingest(address, SOON, items=ITEMS[:16], batch_item_count=8)

    assert [each.error for each in outcomes] == [None] * 16
    assert {len(request.items) for request in service.requests} == {8, 4, 2}
