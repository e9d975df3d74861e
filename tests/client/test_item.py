"""Named items: what they hold, and that they are sent as tuples are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from tandem.client import AsyncClient, Client, IngestProgress, Item, NewItem
from tandem.contract.regions import RegionContent
from tandem.v1 import error_reason_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.messages import IngestRequests
from tests.support.client.search_server import all_stored, search_server

REGIONS = RegionContent.of([[1.0, 2.0]], [[0.0, 0.0, 1.0, 1.0]], image_width=1, image_height=1)
Ingest = Callable[[str, Iterable[NewItem], Callable[[IngestProgress], None]], Awaitable[int]]


def sent(*items: NewItem) -> list[pb.IngestItemsRequest]:
    """Returns the batches."""
    return list(IngestRequests(items, "scenes", 32))


def test_an_item_is_sent_as_its_tuple_is() -> None:
    assert sent(
        Item("a", text="a cup"),
        Item("b", image=b"png", attributes={"count": 3, "tags": ("x", "y")}),
        Item("c", regions=REGIONS),
    ) == sent(("a", "a cup"), ("b", b"png", {"count": 3, "tags": ("x", "y")}), ("c", REGIONS))


async def by_client(
    address: str, items: Iterable[NewItem], tell: Callable[[IngestProgress], None]
) -> int:
    """Ingests in batches of two through Client."""

    def ingest() -> int:
        with Client(address) as client:
            outcomes = client.ingest(items, index_id="s", batch_item_count=2, progress=tell)
            return len(list(outcomes))

    return await asyncio.to_thread(ingest)


async def by_async_client(
    address: str, items: Iterable[NewItem], tell: Callable[[IngestProgress], None]
) -> int:
    """Ingests in batches of two through AsyncClient."""
    async with AsyncClient(address) as client:
        outcomes = client.ingest(items, index_id="s", batch_item_count=2, progress=tell)
        return len([outcome async for outcome in outcomes])


both = pytest.mark.parametrize("ingest", [by_client, by_async_client])


async def second_refused(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
    """Stores all but the item "1"."""
    response = await all_stored(request)
    for result in response.results:
        if result.item_id == "1":
            result.error.reason = error_reason_pb2.ERROR_REASON_TEXT_EMPTY
    return response


@both
async def test_progress_is_reported_after_each_batch(ingest: Ingest) -> None:
    items = [Item(str(number), text="word") for number in range(5)]
    told: list[IngestProgress] = []

    async with search_server(ingest=second_refused) as (address, _):
        assert await ingest(address, items, told.append) == 5
        assert await ingest(address, iter(items), told.append) == 5

    assert told[:3] == [IngestProgress(1, 1, 5), IngestProgress(3, 1, 5), IngestProgress(4, 1, 5)]
    assert told[3:] == [IngestProgress(n, 1, None) for n in (1, 3, 4)]
    assert [each.done_count for each in told[:3]] == [2, 4, 5]


@both
async def test_an_error_of_the_callback_ends_the_ingest(ingest: Ingest) -> None:
    def tell(progress: IngestProgress) -> None:
        raise KeyError("mine")

    async with search_server() as (address, service):
        with pytest.raises(KeyError, match="mine"):
            await ingest(address, [("a", "b")], tell)
        async with asyncio.timeout(30):
            await service.stream_ended.wait()
