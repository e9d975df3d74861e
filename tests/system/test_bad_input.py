"""What people send by mistake or malice: a named error with a code each, and nothing is lost."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from PIL import Image

from tandem.client import Client
from tandem.stack.stack import LocalStack
from tandem.v1 import content_pb2, index_service_pb2, search_service_pb2
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.v1.search_service_pb2_grpc import SearchServiceStub

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def channel(stack: LocalStack) -> Iterator[grpc.Channel]:
    """The bare contract, for what the SDK would not send."""
    with grpc.insecure_channel(stack.address) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_is_lost(client: Client, scenes_index: str) -> Iterator[None]:
    """After each bad input, the same good search gives the same answer as before it."""

    def answer() -> list[str]:
        found = client.search("two dogs left of one umbrella", index_id=scenes_index)
        return [item.item_id for item in found.items]

    before = answer()
    yield
    assert answer() == before


def content(**fields: Any) -> content_pb2.Content:
    """Returns a content, empty by default."""
    return content_pb2.Content(**fields)


def jpeg_cut_in_half() -> bytes:
    """Returns the first half of a good JPEG."""
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()[: len(file.getvalue()) // 2]


def png_bomb() -> bytes:
    """Returns a PNG of a few kB on disk that is 900 megapixels when decoded."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(3_751 * 1_000), 9)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


QUERIES: dict[str, tuple[dict[str, Any], str]] = {
    "white space": ({"query": content(text=" \n\t")}, "TEXT_EMPTY"),
    "neither text nor image": ({"query": content()}, "CONTENT_MISSING"),
    "no query at all": ({}, "QUERY_INVALID"),
    "text over the token limit": ({"query": content(text="cat " * 100)}, "TEXT_TOO_LONG"),
    "JPEG cut in half": ({"query": content(image=jpeg_cut_in_half())}, "IMAGE_UNREADABLE"),
    "small file, huge picture": ({"query": content(image=png_bomb())}, "IMAGE_TOO_LARGE"),
    "retrieve_k of -1": ({"query": content(text="cat"), "retrieve_k": -1}, "K_OUT_OF_RANGE"),
    "malformed index id": ({"query": content(text="cat"), "index_id": "../x"}, "INDEX_ID_INVALID"),
}


@pytest.mark.parametrize(("fields", "reason"), QUERIES.values(), ids=QUERIES)
def test_a_bad_query_is_refused_by_name(
    channel: grpc.Channel, scenes_index: str, fields: dict[str, Any], reason: str
) -> None:
    """The code is INVALID_ARGUMENT, the reason says which, the message says what to do."""
    request = search_service_pb2.SearchItemsRequest(**{"index_id": scenes_index, **fields})

    _refused(lambda: SearchServiceStub(channel).SearchItems(request, timeout=60), INVALID, reason)


VECTORS = {
    "too short": np.eye(1, 191, dtype=np.float32)[0],
    "NaN": np.full(192, np.nan, dtype=np.float32),
}


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_a_bad_vector_is_refused_by_name(
    stack: LocalStack, client: Client, scenes_index: str, vector: np.ndarray
) -> None:
    """At the shard's door, which is the one that takes vectors; searching and storing alike."""
    fingerprint = client.search("cat", index_id=scenes_index).model_fingerprint
    embedding = content_pb2.Embedding(values=vector.tobytes())
    tokens = content_pb2.ContentTokens(text=content_pb2.TextTokens(ids=b"\2\0\0\0"))
    search = index_service_pb2.SearchEmbeddingsRequest(
        index_id=scenes_index,
        queries=[embedding],
        model_fingerprint=fingerprint,
        modality=content_pb2.MODALITY_IMAGE,
        retrieve_k=5,
    )
    item = index_service_pb2.EncodedItem(
        item_id="bad", content=content(text="cat"), embedding=embedding, tokens=tokens
    )
    upsert = index_service_pb2.UpsertItemsRequest(
        index_id=scenes_index, model_fingerprint=fingerprint, items=[item]
    )
    shard = next(each.address for each in stack.endpoints() if each.name == "index-0")

    with grpc.insecure_channel(shard) as channel:
        stub = IndexServiceStub(channel)
        _refused(lambda: stub.SearchEmbeddings(search, timeout=60), INVALID, "EMBEDDING_INVALID")
        _refused(lambda: stub.UpsertItems(upsert, timeout=60), INVALID, "EMBEDDING_INVALID")


def test_a_bad_item_id_fails_alone(client: Client) -> None:
    """The other items of the batch are stored."""
    items = [(each, "one cat") for each in ("good-1", "", "x" * 10_240, "a\0b", "good-2")]

    outcomes = list(client.ingest(items, index_id="bad-ids"))

    reasons = [outcome.error and outcome.error.reason for outcome in outcomes]
    assert reasons == [None, *["ITEM_ID_INVALID"] * 3, None]
    assert client.remove(["good-1", "good-2"], index_id="bad-ids").removed_count == 2


def test_an_id_that_is_not_utf8_is_refused_by_name(channel: grpc.Channel) -> None:
    """Such bytes are not a message of the contract; what the stream stored before them stays."""
    good = search_service_pb2.IngestItemsRequest(index_id="bad-ids")
    good.items.add(item_id="before", content=content(text="one cat"))
    bad = good.SerializeToString().replace(b"before", b"bef\xff\xfee")
    ingest = channel.stream_stream(
        "/tandem.v1.SearchService/IngestItems",
        request_serializer=bytes,
        response_deserializer=search_service_pb2.IngestItemsResponse.FromString,
    )

    answers = ingest(iter([good.SerializeToString(), bad]), timeout=60)
    first = next(answers)
    assert not first.results[0].HasField("error")
    _refused(lambda: next(answers), INVALID, "REQUEST_MALFORMED")

    removal = search_service_pb2.RemoveItemsRequest(index_id="bad-ids", item_ids=["before"])
    assert SearchServiceStub(channel).RemoveItems(removal, timeout=60).removed_count == 1


def test_a_bad_picture_fails_alone(client: Client) -> None:
    """One broken file among good ones does not cost the batch."""
    items: list[tuple[str, str | bytes]] = [
        ("text", "one cat"),
        ("cut", jpeg_cut_in_half()),
        ("bomb", png_bomb()),
        ("nothing", ""),
    ]

    outcomes = list(client.ingest(items, index_id="bad-pictures"))

    reasons = [outcome.error and outcome.error.reason for outcome in outcomes]
    assert reasons == [None, "IMAGE_UNREADABLE", "IMAGE_TOO_LARGE", "TEXT_EMPTY"]


def _refused(call: Callable[[], object], code: grpc.StatusCode, reason: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    metadata = dict(raised.value.trailing_metadata() or ())
    assert (raised.value.code(), metadata.get("tandem-reason")) == (code, reason)
    assert len(raised.value.details()) > 20
