"""Tests that a search waits for its minimum sequence, or is refused."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tandem.chassis.calls.status import error_from_rpc
from tandem.errors import SequenceNotReached
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.index_svc.encoded_items import search_request, upsert_request
from tests.support.index_svc.shard_process import running
from tests.support.item_store.made_items import text_item


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[IndexServiceStub]:
    """Serves a shard with one text, whose change log is at 1."""
    async with running(tmp_path / "shard") as (_, channel):
        stub = IndexServiceStub(channel)
        assert (await stub.UpsertItems(upsert_request([text_item("a", 1)]))).sequence == 1
        yield stub


def request_from(sequence: int) -> pb.SearchEmbeddingsRequest:
    request = search_request([1])
    request.minimum_sequence = sequence
    return request


async def test_an_unreached_sequence_is_named_before_the_deadline(
    stub: IndexServiceStub,
) -> None:
    for timeout, least_seconds, most_seconds in ((0.5, 0.3, 30.0), (None, 0.0, 10.0)):
        for _ in range(20):  # 20 ms are kept for the way back, and a busy machine may take them
            start_time = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.SearchEmbeddings(request_from(7), timeout=timeout)
            seconds = time.monotonic() - start_time
            if caught.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                break

        error = error_from_rpc(caught.value, "index")
        assert isinstance(error, SequenceNotReached), error
        assert error.metadata == {"minimum_sequence": "7", "applied_sequence": "1"}
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert least_seconds <= seconds < most_seconds
