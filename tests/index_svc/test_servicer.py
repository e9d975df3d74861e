"""Tests IndexService on a real server with the chassis's interceptors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message

from index_svc.servicer import IndexServicer
from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.local_shard import LocalShard
from tandem.local.shard.shard import StoredShard
from tandem.v1 import content_pb2
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import (
    IndexServiceStub,
    add_IndexServiceServicer_to_server,
)
from tests.support.chassis import served as chassis
from tests.support.index_svc.encoded_items import encoded_item, search_request, upsert_request
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item, unit_vector

MAP_BYTES = 64 << 20
TIMEOUT_SECONDS = 20


@asynccontextmanager
async def served(
    path: Path,
    *,
    map_bytes: int = MAP_BYTES,
    loaded: bool = True,
    shard_map_version: int = 1,
) -> AsyncIterator[grpc.aio.Channel]:
    """Serves the shard at `path` and yields a channel to it."""
    shard = StoredShard(ItemStore.open(path, 0, 1, map_bytes=map_bytes), path)
    threads = ThreadPoolExecutor(2)
    if loaded:
        shard.load()
    servicer = IndexServicer(LocalShard(shard, threads), shard_map_version=shard_map_version)
    try:
        async with chassis.served(
            partial(add_IndexServiceServicer_to_server, servicer), "index"
        ) as channel:
            yield channel
    finally:
        threads.shutdown()
        shard.close()


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with served(tmp_path / "shard") as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> IndexServiceStub:
    return IndexServiceStub(channel)


async def refusal(call: grpc.aio.UnaryUnaryCall) -> tuple[grpc.StatusCode, errors.TandemError]:
    """Returns the code and the error of a failed call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(call, TIMEOUT_SECONDS)
    return caught.value.code(), error_from_rpc(caught.value, "index")


async def hits(stub: IndexServiceStub, request: pb.SearchEmbeddingsRequest) -> list[list[str]]:
    """Returns the ids of each query's hits."""
    response = await stub.SearchEmbeddings(request, timeout=TIMEOUT_SECONDS)
    return [[hit.item_id for hit in hit_list.hits] for hit_list in response.hit_lists]


async def test_an_index_is_described(stub: IndexServiceStub) -> None:
    """Its live items of each modality, and the rows of those that are gone."""
    items = [text_item("a"), image_item("b", 1), image_item("c", 2), image_item("d", 3)]
    await stub.UpsertItems(upsert_request(items))
    await stub.DeleteItems(pb.DeleteItemsRequest(index_id="scenes", item_ids=["c"]))

    found = await stub.DescribeShardIndex(pb.DescribeShardIndexRequest(index_id="scenes"))

    texts, images = found.parts
    assert (found.model_fingerprint, found.embedding_dimension) == (
        FINGERPRINT,
        len(items[0].encoding.embedding),
    )
    assert found.keyword_state == pb.KEYWORD_STATE_DISABLED
    assert (texts.modality, images.modality) == (
        content_pb2.MODALITY_TEXT,
        content_pb2.MODALITY_IMAGE,
    )
    assert (texts.item_count, texts.dead_row_count) == (1, 0)
    assert (images.item_count, images.dead_row_count, images.tail_row_count) == (2, 1, 0)
    assert (images.index_type, images.device, images.fallback) == ("Flat", "cpu", 0)
    assert not images.HasField("built_recall")
    assert images.recall_target == pytest.approx(0.98)
    assert not images.live_recalls


async def test_everything_is_found_after_a_restart(tmp_path: Path) -> None:
    """Deletions and replacements are included."""
    items = [text_item(f"{seed:04}", seed) for seed in range(200)]
    async with served(tmp_path) as channel:
        stub = IndexServiceStub(channel)
        await stub.UpsertItems(upsert_request(items))
        await stub.UpsertItems(upsert_request([text_item("0007", 777), image_item("i", 1)]))
        await stub.DeleteItems(pb.DeleteItemsRequest(index_id="scenes", item_ids=["0003"]))
        before = await stub.SearchEmbeddings(search_request([7, 777, 3], k=1000))

    async with served(tmp_path) as channel:
        stub = IndexServiceStub(channel)
        after = await stub.SearchEmbeddings(search_request([7, 777, 3], k=1000))
        got = await stub.GetItems(pb.GetItemsRequest(index_id="scenes", item_ids=["0007", "0003"]))

    assert list(after.hit_lists) == list(before.hit_lists)
    assert len(after.hit_lists[0].hits) == 199
    assert after.hit_lists[1].hits[0].item_id == "0007"
    assert [item.content.text for item in got.items] == ["0007 of seed 777"]


async def test_concurrent_writers_and_searchers_see_whole_batches(stub: IndexServiceStub) -> None:
    """Batches have ten items, so each search finds a multiple of ten."""
    await stub.UpsertItems(upsert_request([text_item(f"0-{n}", n) for n in range(10)]))
    counts: list[int] = []

    async def write(batch: int) -> None:
        for seed in range(3):
            items = [text_item(f"{batch}-{n}", seed) for n in range(10)]
            await stub.UpsertItems(upsert_request(items))

    async def search() -> None:
        while not writing.done():
            counts.append(len((await hits(stub, search_request([1], k=1000)))[0]))

    writing = asyncio.gather(*(write(batch) for batch in range(1, 9)))
    await asyncio.gather(writing, search(), search())

    assert {count % 10 for count in counts} == {0}
    assert len((await hits(stub, search_request([1], k=1000)))[0]) == 90


UNIT = unit_vector(1)
WITH_NAN = UNIT.copy()
WITH_NAN[3] = np.nan


def embedding(values: np.ndarray | bytes) -> content_pb2.Embedding:
    """Returns any values as an unchecked embedding message."""
    return content_pb2.Embedding(
        values=values if isinstance(values, bytes) else values.astype("<f4").tobytes()
    )


WRONG_DIMENSION = embedding(unit_vector(1, 16))


def searched(**fields: Any) -> pb.SearchEmbeddingsRequest:
    """Returns a search with other fields."""
    request = search_request([1])
    for name in fields:
        request.ClearField(name)
    request.MergeFrom(pb.SearchEmbeddingsRequest(**fields))
    return request


def upsert_of(**fields: Any) -> pb.UpsertItemsRequest:
    """Returns an upsert of two items, the second with other fields."""
    request = upsert_request([text_item("b", 1), text_item("c", 1)])
    for name in fields:
        request.items[1].ClearField(name)
    request.items[1].MergeFrom(pb.EncodedItem(**fields))
    return request


IMAGE = encoded_item(image_item("a"))
CUT_TOKENS = content_pb2.ContentTokens()
CUT_TOKENS.CopyFrom(IMAGE.tokens)
CUT_TOKENS.image.token_count = 48

REFUSED: dict[str, tuple[Message, type[errors.TandemError]]] = {
    "k of 0": (searched(retrieve_k=0), errors.KOutOfRange),
    "k of 1,001": (searched(retrieve_k=1001), errors.KOutOfRange),
    "no query": (searched(queries=[]), errors.BatchSizeOutOfRange),
    "65 queries": (search_request([1] * 65), errors.BatchSizeOutOfRange),
    "no modality": (searched(modality=0), errors.RequestMalformed),
    "a modality to come": (searched(modality=3), errors.RequestMalformed),
    "a query of NaN": (searched(queries=[embedding(WITH_NAN)]), errors.EmbeddingInvalid),
    "a wide query": (searched(queries=[WRONG_DIMENSION]), errors.EmbeddingInvalid),
    "a search of no model": (searched(model_fingerprint=""), errors.RequestMalformed),
    "a long fingerprint": (searched(model_fingerprint="x" * 129), errors.RequestMalformed),
    "an item of NaN": (upsert_of(embedding=embedding(WITH_NAN)), errors.EmbeddingInvalid),
    "a wide item": (upsert_of(embedding=WRONG_DIMENSION), errors.EmbeddingInvalid),
    "no content": (upsert_of(content=None), errors.ContentMissing),
    "no tokens": (upsert_of(tokens=None), errors.TokensInvalid),
    "cut tokens": (upsert_of(content=IMAGE.content, tokens=CUT_TOKENS), errors.TokensInvalid),
    "a long request id": (
        pb.DeleteItemsRequest(index_id="scenes", item_ids=["a"], request_id="x" * 65),
        errors.RequestIdInvalid,
    ),
    "tokens of another modality": (upsert_of(tokens=IMAGE.tokens), errors.TokensInvalid),
}


@pytest.mark.parametrize(("request_", "error"), REFUSED.values(), ids=REFUSED)
async def test_a_request_is_refused_by_name(
    stub: IndexServiceStub, request_: Message, error: type[errors.TandemError]
) -> None:
    """Nothing of its batch is stored."""
    await stub.UpsertItems(upsert_request([text_item("a", 1)]))
    method = type(request_).__name__.removesuffix("Request")

    code, found = await refusal(getattr(stub, method)(request_))

    assert (code, type(found)) == (grpc.StatusCode.INVALID_ARGUMENT, error)
    assert await hits(stub, search_request([1])) == [["a"]]


def calls_on(index_id: str) -> Sequence[Callable[[IndexServiceStub], grpc.aio.UnaryUnaryCall]]:
    """Returns each method that needs an existing index, called on that index."""
    ids: dict[str, Any] = {"index_id": index_id, "item_ids": ["a"]}
    return (
        lambda stub: stub.SearchEmbeddings(search_request([1], index_id=index_id)),
        lambda stub: stub.DeleteItems(pb.DeleteItemsRequest(**ids)),
        lambda stub: stub.GetItems(pb.GetItemsRequest(**ids)),
        lambda stub: stub.DescribeShardIndex(pb.DescribeShardIndexRequest(index_id=index_id)),
    )


@pytest.mark.parametrize("index_id", ["", "a/b"])
async def test_a_bad_index_id_is_refused(stub: IndexServiceStub, index_id: str) -> None:
    upsert = stub.UpsertItems(upsert_request([text_item("a")], index_id))

    for call in (*(call(stub) for call in calls_on(index_id)), upsert):
        code, error = await refusal(call)
        assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.IndexIdInvalid)


@pytest.mark.parametrize("item_id", ["", "ä" * 129])
async def test_a_bad_item_id_is_refused(stub: IndexServiceStub, item_id: str) -> None:
    """Every method refuses it, and nothing is stored."""
    await stub.UpsertItems(upsert_request([text_item("a", 1)]))
    ids: dict[str, Any] = {"index_id": "scenes", "item_ids": ["a", item_id]}

    for call in (
        stub.UpsertItems(upsert_request([text_item("b", 1), text_item(item_id, 1)])),
        stub.DeleteItems(pb.DeleteItemsRequest(**ids)),
        stub.GetItems(pb.GetItemsRequest(**ids)),
    ):
        code, error = await refusal(call)
        assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.ItemIdInvalid)
    assert await hits(stub, search_request([1])) == [["a"]]


async def test_the_longest_and_strangest_item_ids_are_accepted(stub: IndexServiceStub) -> None:
    """An id has up to 256 bytes of any UTF-8 except NUL, under the longest index id too."""
    item_ids = ["x" * 256, "ä" * 128, "\N{DOG FACE}" * 64, "\x01", " ", "a/b", "\ufeff", "e\u0301"]
    index_id = "i" * 63

    await stub.UpsertItems(upsert_request([text_item(i, 1) for i in item_ids], index_id))

    found = await hits(stub, search_request([1], index_id=index_id))
    assert found == [sorted(item_ids, key=str.encode)]


async def test_a_duplicate_id_refuses_the_batch(stub: IndexServiceStub) -> None:
    """Nothing of the batch is stored."""
    await stub.UpsertItems(upsert_request([text_item("z", 1)]))
    items = [text_item("a", 1), text_item("b", 1), text_item("a", 2)]

    code, error = await refusal(stub.UpsertItems(upsert_request(items)))

    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.ItemIdDuplicate)
    assert error.metadata == {"item_id": "a"}
    assert await hits(stub, search_request([1])) == [["z"]]


@pytest.mark.parametrize("count", [0, 257])
async def test_a_bad_number_of_items_is_refused(stub: IndexServiceStub, count: int) -> None:
    """Every method takes 1 to 256 items or ids."""
    ids: dict[str, Any] = {"index_id": "scenes", "item_ids": [f"{n}" for n in range(count)]}

    for call in (
        stub.UpsertItems(upsert_request([text_item(f"{n}") for n in range(count)])),
        stub.DeleteItems(pb.DeleteItemsRequest(**ids)),
        stub.GetItems(pb.GetItemsRequest(**ids)),
    ):
        code, error = await refusal(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert isinstance(error, errors.BatchSizeOutOfRange)


@pytest.mark.parametrize("message", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe"])
async def test_bytes_that_are_not_a_message_are_refused(
    channel: grpc.aio.Channel, message: bytes
) -> None:
    """Garbage and invalid UTF-8 are the caller's fault."""
    for method in ("SearchEmbeddings", "UpsertItems", "DeleteItems", "GetItems"):
        call = channel.unary_unary(f"/tandem.v1.IndexService/{method}")

        code, error = await refusal(call(message))

        assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.RequestMalformed)


async def test_a_full_store_refuses_writes_and_keeps_serving(tmp_path: Path) -> None:
    """STORE_FULL refuses upserts; searches and deletes work, and then upserts do again."""
    async with served(tmp_path / "shard", map_bytes=4 << 20) as channel:
        stub = IndexServiceStub(channel)
        batches = [[f"{number:03}-{n:02}" for n in range(50)] for number in range(999)]

        async def fill() -> None:
            for batch in batches:
                await stub.UpsertItems(upsert_request([image_item(i, 1) for i in batch]))
                stored.append(batch)

        stored: list[list[str]] = []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await fill()

        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert isinstance(error_from_rpc(caught.value, "index"), errors.StoreFull)
        image = content_pb2.MODALITY_IMAGE
        found = await hits(stub, search_request([1], k=1000, modality=image))
        assert found == [[item_id for batch in stored for item_id in batch][:1000]]
        for batch in stored[: len(stored) // 2]:
            await stub.DeleteItems(pb.DeleteItemsRequest(index_id="scenes", item_ids=batch))
        await stub.UpsertItems(upsert_request([image_item("new", 1000)]))
        found = await hits(stub, search_request([1000], k=1, modality=image))
        assert found == [["new"]]


async def test_nothing_is_answered_before_the_shard_is_loaded(tmp_path: Path) -> None:
    """Every method returns UNAVAILABLE, never an empty response."""
    async with served(tmp_path / "shard", loaded=False) as channel:
        stub = IndexServiceStub(channel)
        upsert = stub.UpsertItems(upsert_request([text_item("a")]))
        for call in (*(call(stub) for call in calls_on("scenes")), upsert):
            code, error = await refusal(call)
            assert (code, type(error)) == (
                grpc.StatusCode.UNAVAILABLE,
                errors.ServiceUnavailable,
            )
        search = search_request([1])
        search.minimum_sequence = 1  # the store may already have it
        code, error = await refusal(stub.SearchEmbeddings(search))
        assert (code, type(error)) == (grpc.StatusCode.UNAVAILABLE, errors.ServiceUnavailable)


async def test_another_shard_maps_version_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """The error names both versions; 0 is not checked."""
    async with served(tmp_path, shard_map_version=3) as channel:
        stub = IndexServiceStub(channel)
        upsert, search = upsert_request([text_item("a", 1)]), search_request([1])
        delete = pb.DeleteItemsRequest(index_id="scenes", item_ids=["a"])

        for version in (0, 3):
            upsert.shard_map_version = search.shard_map_version = version
            await stub.UpsertItems(upsert)
            assert await hits(stub, search) == [["a"]]
        for version in (2, 4, -1):
            for request in (upsert, search, delete):
                request.shard_map_version = version
            for call in (
                stub.UpsertItems(upsert),
                stub.SearchEmbeddings(search),
                stub.DeleteItems(delete),
            ):
                code, error = await refusal(call)
                assert code is grpc.StatusCode.FAILED_PRECONDITION
                assert isinstance(error, errors.ShardMapMismatch)
                assert error.metadata == {
                    "request_version": str(version),
                    "shard_version": "3",
                }
        assert await hits(stub, search_request([1])) == [["a"]]
