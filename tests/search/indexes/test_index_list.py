"""SearchService.ListIndexes over fake shards, and what errors say of the indexes that there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import grpc
import pytest

from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tandem.chassis.calls.status import error_from_rpc
from tandem.client import Access, Client
from tandem.contract.content import ImageContent, TextContent
from tandem.contract.search.ingest import IncomingItem
from tandem.errors import IndexNotFound, InternalFault, TandemError
from tandem.v1 import content_service_pb2 as content_pb
from tandem.v1 import search_service_pb2 as pb
from tests.support.orchestrator_svc.downstream import (
    FINGERPRINT,
    Stack,
    content_door,
    door,
    door_address,
    ingest,
    raising,
    stack,
)


async def filled(behind: Stack, *index_ids: str) -> None:
    """Stores a text on shard 0, and a text and a picture on shard 1, in each index."""
    for index_id in index_ids:
        items = [
            IncomingItem(behind.id_on(0), TextContent("1"), {}),
            IncomingItem(behind.id_on(1, "text"), TextContent("2"), {}),
            IncomingItem(behind.id_on(1, "picture"), ImageContent(b"3"), {}),
        ]
        await ingest(behind.ingester, items, index_id=index_id)


async def refusal(call: grpc.aio.UnaryUnaryCall) -> TandemError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value, "it")


async def test_indexes_are_listed_by_id_with_the_items_of_all_shards() -> None:
    async with stack() as behind, door(behind) as stub:
        empty = await stub.ListIndexes(pb.ListIndexesRequest())
        await filled(behind, "scenes", "pets")
        found = await stub.ListIndexes(pb.ListIndexesRequest())

    assert not empty.indexes
    assert [each.index_id for each in found.indexes] == ["pets", "scenes"]
    assert [(each.text_count, each.image_count) for each in found.indexes] == [(2, 1)] * 2
    assert found.indexes[0].model_fingerprint == FINGERPRINT
    assert not found.next_page_token
    assert not found.missing_shards


async def test_pages_together_have_each_index_once() -> None:
    async with stack() as behind, door(behind) as stub:
        await filled(behind, "b", "d", "e")
        for number, index_id in enumerate("acf"):
            item = IncomingItem(behind.id_on(number % 2), TextContent("1"), {})
            await ingest(behind.ingester, [item], index_id=index_id)
        listed, request = [], pb.ListIndexesRequest(page_size=2)
        while True:
            page = await stub.ListIndexes(request)
            assert len(page.indexes) <= 2
            listed += [each.index_id for each in page.indexes]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        reasons = [
            (await refusal(stub.ListIndexes(pb.ListIndexesRequest(**odd)))).reason
            for odd in ({"page_size": 0}, {"page_size": 1001}, {"page_token": "No index"})
        ]

    assert listed == list("abcdef")
    assert reasons == ["BATCH_SIZE_OUT_OF_RANGE", "BATCH_SIZE_OUT_OF_RANGE", "INDEX_ID_INVALID"]


async def test_a_shard_that_does_not_answer_is_named() -> None:
    """Its items are left out; with full coverage required, or without any shard, it is refused."""
    async with stack() as behind, door(behind) as stub:
        await filled(behind, "scenes")
        behind.shards[1].before["ListShardIndexes"] = raising(InternalFault(why="unknown"))
        found = await stub.ListIndexes(pb.ListIndexesRequest())
        strict = await refusal(stub.ListIndexes(pb.ListIndexesRequest(full_coverage_required=True)))
        behind.shards[0].before["ListShardIndexes"] = raising(InternalFault(why="unknown"))
        nothing = await refusal(stub.ListIndexes(pb.ListIndexesRequest()))

    assert [(each.text_count, each.image_count) for each in found.indexes] == [(1, 0)]
    assert [each.shard_number for each in found.missing_shards] == [1]
    assert (strict.reason, nothing.reason) == ("SHARDS_MISSING", "SHARDS_MISSING")


def guarded(folder: Path) -> Guard:
    """Returns a guard with tokens for all indexes, for some, and for writing."""
    path = folder / "tokens.toml"
    grants = {
        "all": '["search"]\nindexes = ["*"]',
        "some": '["search"]\nindexes = ["pets", "nowhere", "zoo"]',
        "writes": '["write"]\nindexes = ["*"]',
    }
    path.write_text(
        "\n".join(
            f'[tokens.{name}]\nsha256 = "{sha256(name.encode()).hexdigest()}"\nscopes = {grant}'
            for name, grant in grants.items()
        )
    )
    return Guard(TokenFile(path))


async def test_a_caller_learns_only_of_indexes_that_its_token_may_search(tmp_path: Path) -> None:
    """In pages as in one; nor does an error name others."""

    def listed(address: str, token: str) -> list[str]:
        with Client(address, access=Access(token=token)) as client:
            return [each.index_id for each in client.list_indexes().indexes]

    def message(address: str, token: str, call: Callable[[Client], object]) -> str:
        with Client(address, access=Access(token=token)) as client:
            with pytest.raises(IndexNotFound) as caught:
                call(client)
            return caught.value.message

    def describe(client: Client) -> object:
        return client.describe_index(index_id="nowhere")

    def remove(client: Client) -> object:
        return client.remove_index(index_id="nowhere")

    async with stack() as behind, door_address(behind, guarded(tmp_path)) as address:
        await filled(behind, "pets", "scenes", "zoo")
        assert await asyncio.to_thread(listed, address, "all") == ["pets", "scenes", "zoo"]
        assert await asyncio.to_thread(listed, address, "some") == ["pets", "zoo"]
        of_some = await asyncio.to_thread(message, address, "some", describe)
        of_all = await asyncio.to_thread(message, address, "all", describe)
        of_a_writer = await asyncio.to_thread(message, address, "writes", remove)

    assert "there are pets, zoo;" in of_some
    assert "there are pets, scenes, zoo;" in of_all
    assert "there are" not in of_a_writer


async def test_every_call_names_the_indexes_that_there_are() -> None:
    """At most eight; without any, and without a shard that lists them, the error is as short."""
    search = pb.SearchItemsRequest(index_id="nowhere", query={"text": "1"})
    async with stack() as behind, door(behind) as stub, content_door(behind) as contents:
        bare = await refusal(stub.SearchItems(search))
        await filled(behind, *(f"index-{number}" for number in range(9)))
        calls = [
            stub.SearchItems(search),
            stub.RemoveIndex(pb.RemoveIndexRequest(index_id="nowhere")),
            stub.DescribeIndex(pb.DescribeIndexRequest(index_id="nowhere")),
            contents.ListItems(content_pb.ListItemsRequest(index_id="nowhere")),
            contents.FetchItems(content_pb.FetchItemsRequest(index_id="nowhere", item_ids=["a"])),
        ]
        messages = [(await refusal(call)).message for call in calls]
        batch = await stub.BatchSearchItems(pb.BatchSearchItemsRequest(searches=[search, search]))
        messages += [each.error.message for each in batch.results]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stub.StreamSearchItems(pb.StreamSearchItemsRequest(search=search))))
        messages.append(error_from_rpc(caught.value, "it").message)
        for shard in behind.shards:
            shard.before["ListShardIndexes"] = raising(InternalFault(why="unknown"))
        unlisted = await refusal(stub.SearchItems(search))

    names = ", ".join(f"index-{number}" for number in range(8))
    there_are = f"there are {names} and others"
    assert set(messages) == {
        f"there is no index 'nowhere'; {there_are}; ingest into it, or check the id"
    }
    assert bare.message == unlisted.message
    assert bare.message == "there is no index 'nowhere'; ingest into it, or check the id"
