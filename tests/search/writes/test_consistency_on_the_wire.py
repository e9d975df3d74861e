"""Tokens of writes and the coverage of answers, as callers get them."""

from __future__ import annotations

from tandem import errors
from tandem.search.writes.consistency_token import read_tokens
from tandem.v1 import error_reason_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.orchestrator_svc.caller import (
    TIMEOUT_SECONDS,
    batch,
    query,
    refused,
)
from tests.support.orchestrator_svc.downstream import door, stack


async def test_coverage_is_on_the_wire() -> None:
    """With all shards, and without one; full coverage is then refused."""
    async with stack() as behind, door(behind) as stub:
        items = {behind.id_on(0): "0", behind.id_on(1): "1"}
        assert [each async for each in stub.IngestItems(iter([batch(items)]))]

        whole = (await stub.SearchItems(query(), timeout=TIMEOUT_SECONDS)).coverage
        await behind.stop_shard(1)
        part = (await stub.SearchItems(query(), timeout=TIMEOUT_SECONDS)).coverage
        error = await refused(
            stub.SearchItems(query(full_coverage_required=True), timeout=TIMEOUT_SECONDS)
        )

    assert whole == pb.Coverage(
        answered_shard_count=2, shard_count=2, covered_item_count=2, item_count=2
    )
    assert part == pb.Coverage(
        answered_shard_count=1,
        shard_count=2,
        covered_item_count=1,
        item_count=2,
        missing_shards=[
            pb.MissingShard(
                shard_number=1, reason=error_reason_pb2.ERROR_REASON_SERVICE_UNAVAILABLE
            )
        ],
    )
    assert isinstance(error, errors.ShardsMissing)
    assert error.metadata["missing_shards"] == "1"


async def test_a_streams_last_token_covers_its_batches() -> None:
    """Two batches, each on a shard of its own: the second's token makes both shards wait."""
    async with stack() as behind, door(behind) as stub:
        batches = [batch({behind.id_on(0): "0"}), batch({behind.id_on(1): "1"})]

        first, last = [each async for each in stub.IngestItems(iter(batches))]
        found = await stub.SearchItems(
            query(consistency_tokens=[last.consistency_token]), timeout=TIMEOUT_SECONDS
        )

        assert len(found.items) == 2
        assert read_tokens([first.consistency_token], behind.shard_map) == {0: 1}
        assert read_tokens([last.consistency_token], behind.shard_map) == {0: 1, 1: 1}
        assert [
            shard.requests("SearchEmbeddings")[-1].minimum_sequence  # type: ignore[attr-defined]
            for shard in behind.shards
        ] == [1, 1]


async def test_a_search_by_token_never_answers_from_before_the_write() -> None:
    """A shard that was reset behind it is an error, not an answer without the item."""
    async with stack(shard_count=1) as behind, door(behind) as stub:
        [response] = [each async for each in stub.IngestItems(iter([batch({"a": "0"})]))]
        del behind.shards[0].items["scenes"]["a"]
        behind.shards[0].sequence = 0

        request = query(consistency_tokens=[response.consistency_token])
        error = await refused(stub.SearchItems(request, timeout=TIMEOUT_SECONDS))

    assert isinstance(error, errors.SequenceNotReached)
    assert error.metadata == {"minimum_sequence": "1", "applied_sequence": "0"}


async def test_a_removals_token_names_its_shards() -> None:
    """A removal that touched nothing returns a token too."""
    async with stack() as behind, door(behind) as stub:
        item_id = behind.id_on(1)
        assert [each async for each in stub.IngestItems(iter([batch({item_id: "0"})]))]

        touched = await stub.RemoveItems(
            pb.RemoveItemsRequest(index_id="scenes", item_ids=[item_id]), timeout=5
        )
        untouched = await stub.RemoveItems(
            pb.RemoveItemsRequest(index_id="nowhere", item_ids=["a"]), timeout=5
        )

        tokens = [touched.consistency_token, untouched.consistency_token]
        assert [read_tokens([token], behind.shard_map) for token in tokens] == [{1: 2}, {}]
        found = await stub.SearchItems(query(consistency_tokens=tokens), timeout=TIMEOUT_SECONDS)
        assert not found.items
