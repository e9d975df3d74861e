"""tandem.contract.index_description: parts as messages, and recalls of several shards joined."""

from __future__ import annotations

import pytest

from tandem.contract.index_description import (
    SHARD_INDEX_WIRE,
    DirectionRecall,
    IndexPart,
    ShardIndex,
    joined_recalls,
)
from tandem.contract.modality import Modality
from tandem.contract.search_path import Fallback, KeywordState, SearchFallback
from tandem.v1 import search_service_pb2

TEXT, IMAGE = Modality.TEXT, Modality.IMAGE


def test_a_shards_index_survives_the_wire() -> None:
    full = IndexPart(
        modality=IMAGE,
        item_count=10,
        dead_row_count=2,
        tail_row_count=3,
        index_type="IVF8,Flat",
        parameters={"nprobe": 4.0},
        device="cuda:0",
        fallback=Fallback(SearchFallback.DEVICE, "no memory"),
        activity="building Flat",
        index_bytes=99,
        recall_target=0.5,
        built_recall=0.0,
        list_imbalance=1.5,
        live_recalls=[DirectionRecall(TEXT, IMAGE, 0.25, 8)],
    )
    bare = IndexPart(modality=TEXT, item_count=0, live_recalls=[])
    shard = ShardIndex(3, [bare, full], KeywordState.BEING_BUILT)

    assert SHARD_INDEX_WIRE.from_proto(SHARD_INDEX_WIRE.to_proto(shard)) == shard


def test_unknown_values_of_a_newer_server_are_left_out() -> None:
    message = search_service_pb2.ShardIndex()
    message.parts.add(modality=7)
    known = message.parts.add(modality="MODALITY_TEXT", fallback=99)
    known.live_recalls.add(query_modality=7)

    [part] = SHARD_INDEX_WIRE.from_proto(message).parts

    assert (part.modality, part.fallback.kind) == (TEXT, SearchFallback.NONE)
    assert part.live_recalls == []


def test_recalls_are_weighted_by_their_searches() -> None:
    """30 searches at 0.9 and 10 at 0.5 are 40 at 0.8."""
    recalls = [
        DirectionRecall(TEXT, IMAGE, 0.9, 30),
        DirectionRecall(IMAGE, TEXT, 1.0, 5),
        DirectionRecall(TEXT, IMAGE, 0.5, 10),
        DirectionRecall(TEXT, TEXT, 0.0, 0),
    ]

    first, second = joined_recalls(recalls)

    assert (first.query_modality, first.target_modality, first.search_count) == (TEXT, IMAGE, 40)
    assert first.recall == pytest.approx(0.8)
    assert second == DirectionRecall(IMAGE, TEXT, 1.0, 5)


def test_an_index_in_construction_is_described_as_such() -> None:
    def shard(kind: SearchFallback) -> ShardIndex:
        part = IndexPart(modality=IMAGE, item_count=1, fallback=Fallback(kind, "why"))
        return ShardIndex(0, [part], KeywordState.DISABLED)

    assert shard(SearchFallback.BEING_BUILT).is_rebuilding
    assert not shard(SearchFallback.NOT_BUILT).is_rebuilding
