"""Requests to SearchService, and readers of its answers."""

from __future__ import annotations

import grpc
import pytest

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.v1 import content_pb2, error_reason_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tests.support.orchestrator_svc.downstream import Stack, door

TIMEOUT_SECONDS = 20


def batch(items: dict[str, str], index_id: str = "scenes") -> pb.IngestItemsRequest:
    """Returns a batch of texts by item id."""
    return pb.IngestItemsRequest(
        index_id=index_id,
        items=[
            index_pb.Item(item_id=item_id, content=content_pb2.Content(text=text))
            for item_id, text in items.items()
        ],
    )


def query(**fields: object) -> pb.SearchItemsRequest:
    """Returns a search for texts near 1 degree."""
    content = content_pb2.Content(text="1")
    return pb.SearchItemsRequest(
        **({"index_id": "scenes", "query": content, "target_modality": "MODALITY_TEXT"} | fields)  # type: ignore[arg-type]
    )


def reasons(response: pb.IngestItemsResponse) -> list[str | None]:
    """Returns each item's reason, or None where stored."""
    return [
        error_reason_pb2.ErrorReason.Name(result.error.reason).removeprefix("ERROR_REASON_")
        if result.HasField("error")
        else None
        for result in response.results
    ]


def text_of(behind: Stack, item_id: str) -> str:
    """Returns what is stored under the id."""
    shard = behind.shards[behind.shard_map.owner("scenes", item_id)]
    return shard.items["scenes"][item_id].content.text


async def refused(call: grpc.aio.Call) -> errors.TandemError:
    """Returns the named error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value, "orchestrator")


async def stored(behind: Stack, request: pb.IngestItemsRequest) -> list[str | None]:
    """Ingests one batch and returns each item's reason."""
    async with door(behind) as stub:
        call = stub.IngestItems(iter([request]), timeout=TIMEOUT_SECONDS)
        return reasons(await call.read())
