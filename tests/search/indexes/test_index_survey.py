"""SearchService.DescribeIndex over fake shards: what they say together, and without some."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tandem.chassis.calls.status import REASON_KEY
from tandem.contract.content import ImageContent, TextContent
from tandem.contract.search.ingest import IncomingItem
from tandem.errors import InternalFault
from tandem.v1 import content_pb2, error_reason_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tests.support.orchestrator_svc.downstream import (
    FINGERPRINT,
    Stack,
    door,
    ingest,
    raising,
    stack,
)

TEXT, IMAGE = content_pb2.MODALITY_TEXT, content_pb2.MODALITY_IMAGE
REQUEST = pb.DescribeIndexRequest(index_id="scenes")


async def filled(behind: Stack) -> None:
    """Stores a text and two pictures on shard 0, and a picture on shard 1."""
    on_0 = [behind.id_on(0, start) for start in ("text", "first", "second")]
    items = [IncomingItem(on_0[0], TextContent("1"), {})]
    for number, item_id in enumerate([*on_0[1:], behind.id_on(1)]):
        items.append(IncomingItem(item_id, ImageContent(str(number).encode()), {}))
    await ingest(behind.ingester, items)


def recall(value: float, count: int) -> index_pb.DirectionRecall:
    return index_pb.DirectionRecall(
        query_modality=TEXT, target_modality=IMAGE, recall=value, search_count=count
    )


async def reason(call: grpc.aio.UnaryUnaryCall) -> str:
    """Returns the reason of a failed call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return str(dict(caught.value.trailing_metadata() or ())[REASON_KEY])


async def test_all_shards_are_described_and_their_recalls_joined() -> None:
    """By number; 30 searches at 0.9 and 10 at 0.5 are 40 at 0.8."""
    async with stack() as behind, door(behind) as stub:
        await filled(behind)
        behind.shards[0].recalls = [recall(0.9, 30)]
        behind.shards[1].recalls = [recall(0.5, 10)]
        found = await stub.DescribeIndex(REQUEST)

    counts = {
        (shard.shard_number, part.modality): part.item_count
        for shard in found.shards
        for part in shard.parts
    }
    assert counts == {(0, TEXT): 1, (0, IMAGE): 2, (1, TEXT): 0, (1, IMAGE): 1}
    assert (found.model_fingerprint, found.embedding_dimension) == (FINGERPRINT, 2)
    [joined] = found.live_recalls
    assert (joined.query_modality, joined.target_modality) == (TEXT, IMAGE)
    assert (joined.recall, joined.search_count) == (pytest.approx(0.8), 40)
    assert [shard.keyword_state for shard in found.shards] == [index_pb.KEYWORD_STATE_SEARCHED] * 2
    coverage = found.coverage
    assert (coverage.answered_shard_count, coverage.shard_count) == (2, 2)
    assert (coverage.covered_item_count, coverage.item_count) == (4, 4)
    assert not found.degradations


async def test_a_shard_without_the_index_counts_as_answered() -> None:
    """It has none of its items, which is nothing degraded; an index of no shard is not found."""
    async with stack() as behind, door(behind) as stub:
        await ingest(behind.ingester, [IncomingItem(behind.id_on(1), TextContent("1"), {})])
        found = await stub.DescribeIndex(REQUEST)
        nowhere = await reason(stub.DescribeIndex(pb.DescribeIndexRequest(index_id="nowhere")))
        odd = await reason(stub.DescribeIndex(pb.DescribeIndexRequest(index_id="No index")))

    assert [shard.shard_number for shard in found.shards] == [1]
    assert found.coverage.answered_shard_count == 2
    assert not found.degradations
    assert (nowhere, odd) == ("INDEX_NOT_FOUND", "INDEX_ID_INVALID")


async def test_a_shard_that_fails_is_named_and_counted_as_last_known() -> None:
    """One that is gone, and one of an earlier version, which lacks the method."""
    async with stack(3) as behind, door(behind) as stub:
        await filled(behind)
        await ingest(behind.ingester, [IncomingItem(behind.id_on(2), TextContent("1"), {})])
        await stub.DescribeIndex(REQUEST)
        await behind.stop_shard(1)
        behind.shards[2].before["DescribeShardIndex"] = raising(InternalFault(why="unknown"))
        found = await stub.DescribeIndex(REQUEST)
        strict = pb.DescribeIndexRequest(index_id="scenes", full_coverage_required=True)
        refused = await reason(stub.DescribeIndex(strict))

    missing = {each.shard_number: each.reason for each in found.coverage.missing_shards}
    assert set(missing) == {1, 2}
    assert [shard.shard_number for shard in found.shards] == [0]
    assert (found.coverage.covered_item_count, found.coverage.item_count) == (3, 5)
    assert list(found.degradations) == [pb.DEGRADATION_SHARDS_MISSING]
    assert refused == "SHARDS_MISSING"


async def test_no_index_is_called_unknown_while_a_shard_is_missing() -> None:
    """The missing one may have it."""
    async with stack() as behind, door(behind) as stub:
        await ingest(behind.ingester, [IncomingItem(behind.id_on(0), TextContent("1"), {})])
        await behind.stop_shard(0)

        assert await reason(stub.DescribeIndex(REQUEST)) == "SHARDS_MISSING"


async def test_a_shard_that_hangs_is_left_out_within_the_deadline() -> None:
    """The others' answers are kept; if all hang, the deadline is what failed."""
    hangs = asyncio.Event()

    async def hang(request: object) -> None:
        await hangs.wait()

    async with stack() as behind, door(behind) as stub:
        await filled(behind)
        behind.shards[1].before["DescribeShardIndex"] = hang
        found = await stub.DescribeIndex(REQUEST, timeout=2.0)
        behind.shards[0].before["DescribeShardIndex"] = hang
        refused = await reason(stub.DescribeIndex(REQUEST, timeout=2.0))
        hangs.set()

    [missing] = found.coverage.missing_shards
    assert missing.shard_number == 1
    assert missing.reason == error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED
    assert not found.coverage.HasField("item_count")
    assert refused == "DEADLINE_EXCEEDED"


async def test_an_index_that_is_being_built_is_a_degradation() -> None:
    """Its searches scan all items."""
    async with stack() as behind, door(behind) as stub:
        await filled(behind)
        behind.shards[1].path.fallback = index_pb.SEARCH_FALLBACK_BEING_BUILT
        found = await stub.DescribeIndex(REQUEST)

    assert list(found.degradations) == [pb.DEGRADATION_SHARD_REBUILDING]
