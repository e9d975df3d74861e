"""FindNeighbours on a real server: what it answers, and what it refuses by name."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.v1 import content_pb2
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire import embedding_to_proto
from tests.index_svc.test_servicer import TIMEOUT_SECONDS, served
from tests.support.index_svc.encoded_items import upsert_request
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item, unit_vector


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[IndexServiceStub]:
    """A shard of three texts and two images."""
    async with served(tmp_path / "shard") as channel:
        stub = IndexServiceStub(channel)
        texts = [text_item(name, seed) for seed, name in enumerate("abc")]
        await stub.UpsertItems(upsert_request([*texts, image_item("x", 3), image_item("y", 4)]))
        yield stub


def asked(seed: int = 0, *seeds: int, **fields: object) -> pb.FindNeighboursRequest:
    """Returns a request about the embedding of one seed, and candidates of others."""
    wanted = {
        "index_id": "scenes",
        "model_fingerprint": FINGERPRINT,
        "query": embedding_to_proto(unit_vector(seed)),
        "candidates": [embedding_to_proto(unit_vector(each)) for each in seeds],
        "pool_k": 5,
        "pillar_k": 2,
        "neighbour_k": 1,
    } | fields
    return pb.FindNeighboursRequest(**wanted)  # type: ignore[arg-type]


async def refusal(stub: IndexServiceStub, request: pb.FindNeighboursRequest) -> errors.TandemError:
    """Returns the error of a call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.FindNeighbours(request, timeout=TIMEOUT_SECONDS)
    return error_from_rpc(caught.value, "index")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"pool_k": 0}, errors.KOutOfRange),
        ({"pillar_k": 6}, errors.KOutOfRange),
        ({"neighbour_k": 6}, errors.KOutOfRange),
        ({"index_id": "others"}, errors.IndexNotFound),
        ({"model_fingerprint": "model-b"}, errors.ModelMismatch),
        ({"model_fingerprint": ""}, errors.RequestMalformed),
        ({"query": content_pb2.Embedding(values=b"\x00\x00\xc0\x7f" * 8)}, errors.EmbeddingInvalid),
        (
            {"candidates": [embedding_to_proto(unit_vector(1))] * 65},
            errors.BatchSizeOutOfRange,
        ),
        (
            {"candidates": [embedding_to_proto(unit_vector(1, 16))]},
            errors.EmbeddingInvalid,
        ),
        ({"shard_map_version": 2}, errors.ShardMapMismatch),
    ],
)
async def test_the_fault_is_named(
    stub: IndexServiceStub, fields: dict[str, object], error: type[errors.TandemError]
) -> None:
    """NaN too, which compares as neither near nor far."""
    assert type(await refusal(stub, asked(**fields))) is error  # type: ignore[arg-type]
