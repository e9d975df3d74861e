"""The calls other than plain search, through both clients: pages, streams, batches, the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tandem import errors
from tandem.client import (
    AsyncClient,
    Client,
    DegradationKind,
    IndexDescription,
    IndexListing,
    KeywordState,
    Modality,
    ModelDescription,
    Search,
    SearchFallback,
    SearchResult,
)
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import search_server

Batch = list[SearchResult | errors.TandemError]


class Threaded:
    """Client, in threads."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def page(self, cursor: bytes, return_n: int | None = None) -> SearchResult:
        """Asks for a page of "scenes"."""

        def page() -> SearchResult:
            with Client(self._address) as client:
                return client.search_page(cursor, index_id="scenes", return_n=return_n)

        return await asyncio.to_thread(page)

    async def stream(self, text: str, take: int = 2) -> list[SearchResult]:
        """Takes so many answers of a stream."""

        def stream() -> list[SearchResult]:
            with Client(self._address) as client:
                answers = client.search_stream(text, index_id="scenes", retrieve_k=30)
                taken = [next(answers) for _ in range(take)]
                if take > 1:
                    assert next(answers, None) is None
                answers.close()  # type: ignore[attr-defined]
                return taken

        return await asyncio.to_thread(stream)

    async def batch(self, texts: list[str]) -> Batch:
        """Searches for each."""

        def batch() -> Batch:
            with Client(self._address) as client:
                return client.search_batch(Search(text, index_id="scenes") for text in texts)

        return await asyncio.to_thread(batch)

    async def model(self) -> ModelDescription:
        """Asks for the model."""

        def model() -> ModelDescription:
            with Client(self._address) as client:
                return client.describe_model()

        return await asyncio.to_thread(model)

    async def index(self, **options: bool) -> IndexDescription:
        """Asks for the state of "scenes"."""

        def index() -> IndexDescription:
            with Client(self._address) as client:
                return client.describe_index(index_id="scenes", **options)

        return await asyncio.to_thread(index)


class Awaited:
    """AsyncClient."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def page(self, cursor: bytes, return_n: int | None = None) -> SearchResult:
        """As Threaded."""
        async with AsyncClient(self._address) as client:
            return await client.search_page(cursor, index_id="scenes", return_n=return_n)

    async def stream(self, text: str, take: int = 2) -> list[SearchResult]:
        """As Threaded."""
        async with AsyncClient(self._address) as client:
            answers = client.search_stream(text, index_id="scenes", retrieve_k=30)
            taken = [await anext(answers) for _ in range(take)]
            if take > 1:
                assert await anext(answers, None) is None
            await answers.aclose()  # type: ignore[attr-defined]
            return taken

    async def batch(self, texts: list[str]) -> Batch:
        """As Threaded."""
        async with AsyncClient(self._address) as client:
            return await client.search_batch(Search(text, index_id="scenes") for text in texts)

    async def model(self) -> ModelDescription:
        """As Threaded."""
        async with AsyncClient(self._address) as client:
            return await client.describe_model()

    async def index(self, **options: bool) -> IndexDescription:
        """As Threaded."""
        async with AsyncClient(self._address) as client:
            return await client.describe_index(index_id="scenes", **options)


Connect = Callable[[str], Threaded | Awaited]


@pytest.fixture(name="connect", params=[Threaded, Awaited])
def _connect(request: pytest.FixtureRequest) -> Connect:
    return request.param


async def echo(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """Finds an item that is called as the query, unless it is "bad"."""
    if request.query.text == "bad":
        raise errors.TextEmpty()
    return pb.SearchItemsResponse(
        items=[pb.RankedItem(item_id=request.query.text)], next_cursor=b"more"
    )


async def test_a_page_is_requested_by_the_cursor_of_an_answer(connect: Connect) -> None:
    async with search_server(echo) as (address, service):
        result = await connect(address).page(b"\0cursor", return_n=3)

    assert result.next_cursor == b"more"
    assert service.requests == [
        pb.SearchItemsRequest(index_id="scenes", cursor=b"\0cursor", return_n=3)
    ]


async def test_a_stream_gives_both_answers(connect: Connect) -> None:
    """The second one is final; the options go with the query."""
    async with search_server(echo) as (address, service):
        first, second = await connect(address).stream("two dogs")

    assert (first.is_final, second.is_final) == (False, True)
    assert first.items == second.items
    [request] = service.requests
    assert isinstance(request, pb.StreamSearchItemsRequest)
    assert (request.search.query.text, request.search.retrieve_k) == ("two dogs", 30)


async def test_a_caller_can_stop_after_the_first_answer(connect: Connect) -> None:
    """The server hears of it."""
    asked = []

    async def slow_second(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        asked.append(request)
        if len(asked) > 1:
            await asyncio.sleep(30)
        return pb.SearchItemsResponse()

    async with search_server(slow_second) as (address, service):
        [first] = await connect(address).stream("two dogs", take=1)
        async with asyncio.timeout(60):
            await service.stream_ended.wait()

    assert not first.is_final


async def test_only_the_unsendable_search_of_a_batch_is_refused(connect: Connect) -> None:
    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        if not request.query.text:
            raise errors.QueryInvalid(why="there is none")
        return pb.SearchItemsResponse(model_fingerprint=request.query.text)

    async with search_server(search) as (address, _):
        outcomes = await connect(address).batch(["a", "\ud800", "b", "x" * 131_073])

    assert [type(outcome) for outcome in outcomes] == [
        SearchResult,
        errors.RequestMalformed,
        SearchResult,
        errors.TextTooLong,
    ]


async def test_each_search_of_a_batch_has_its_own_outcome(connect: Connect) -> None:
    async with search_server(echo) as (address, _):
        first, second, third = await connect(address).batch(["a", "bad", "c"])

    assert isinstance(first, SearchResult)
    assert isinstance(second, errors.TextEmpty)
    assert isinstance(third, SearchResult)
    assert [item.item_id for item in (*first.items, *third.items)] == ["a", "c"]


async def test_an_index_is_described(connect: Connect) -> None:
    async with search_server() as (address, service):
        found = await connect(address).index()
        await connect(address).index(full_coverage_required=True)

    assert service.requests == [
        pb.DescribeIndexRequest(index_id="scenes"),
        pb.DescribeIndexRequest(index_id="scenes", full_coverage_required=True),
    ]
    [shard] = found.shards
    texts, images = shard.parts
    assert (found.model_fingerprint, found.embedding_dimension) == ("f1", 256)
    assert (shard.shard_number, shard.keyword_state) == (1, KeywordState.BEING_BUILT)
    assert (texts.item_count, texts.built_recall, texts.list_imbalance) == (12, None, None)
    assert (images.index_type, images.parameters, images.built_recall) == (
        "IVF64,Flat",
        {"nprobe": 8.0},
        0.99,
    )
    assert (images.fallback.kind, images.fallback.why) == (
        SearchFallback.NOT_BUILT,
        "too few items",
    )
    assert found.item_count(Modality.IMAGE) == 30_000
    assert found.item_count(Modality.TEXT) == 12
    [live] = found.live_recalls
    assert (live.query_modality, live.target_modality) == (Modality.TEXT, Modality.IMAGE)
    assert (live.recall, live.search_count) == (0.75, 40)
    assert list(images.live_recalls) == [live]
    assert found.coverage.missing_shards == {0: "SERVICE_UNAVAILABLE"}
    assert found.coverage.item_count is None
    assert found.degradations == (DegradationKind.SHARDS_MISSING,)


async def test_all_pages_of_indexes_are_listed() -> None:
    def listed(address: str) -> IndexListing:
        with Client(address) as client:
            return client.list_indexes()

    async with search_server() as (address, service), AsyncClient(address) as client:
        found = await client.list_indexes(full_coverage_required=True)
        assert await asyncio.to_thread(listed, address) == found

    assert [each.index_id for each in found.indexes] == ["pets", "scenes"]
    assert (found.indexes[0].text_count, found.indexes[0].image_count) == (3, 1)
    assert found.missing_shards == {1: "SERVICE_UNAVAILABLE"}
    assert service.requests[:2] == [
        pb.ListIndexesRequest(page_size=1000, full_coverage_required=True),
        pb.ListIndexesRequest(page_size=1000, full_coverage_required=True, page_token="pets"),
    ]
