"""Hybrid searches end to end: both lists are fused, reranked and paged; gaps are reported."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import grpc
import pytest

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.v1 import content_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.attribute_pb2 import AttributeValue
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.orchestrator_svc.downstream import Stack, door, stack

TIMEOUT_SECONDS = 20


@pytest.fixture(name="behind")
async def _behind() -> AsyncIterator[Stack]:
    """Two shards with pictures at 0 to 19 degrees, of which those at 15 and 17 show a cup."""
    async with stack() as behind:
        async with door(behind) as stub:
            items = [
                index_pb.Item(
                    item_id=f"image-{n:02}",
                    content={"image": str(n).encode()},
                    attributes={
                        "caption": AttributeValue(text="a cup" if n in (15, 17) else "a dog")
                    },
                )
                for n in range(20)
            ]
            items.append(index_pb.Item(item_id="text-cup", content={"text": "18 cup"}))
            items += [
                index_pb.Item(item_id=f"text-{n}", content={"text": str(n)}) for n in range(5)
            ]
            request = pb.IngestItemsRequest(index_id="scenes", items=items)
            async for response in stub.IngestItems(iter([request])):
                assert not any(result.HasField("error") for result in response.results)
        yield behind


@pytest.fixture(name="stub")
async def _stub(behind: Stack) -> AsyncIterator[SearchServiceStub]:
    async with door(behind) as stub:
        yield stub


async def answered(stub: SearchServiceStub, **fields: object) -> pb.SearchItemsResponse:
    """Returns the answer to a search for pictures near 1 degree, three of each list."""
    start: dict[str, object] = {
        "index_id": "scenes",
        "query": {"text": "1.2"},
        "retrieve_k": 4,
        "rerank_disabled": True,
    }
    response: pb.SearchItemsResponse = await stub.SearchItems(
        pb.SearchItemsRequest(**(start | fields)),  # type: ignore[arg-type]
        timeout=TIMEOUT_SECONDS,
    )
    return response


def ids(response: pb.SearchItemsResponse) -> list[str]:
    return [item.item_id for item in response.items]


async def test_words_find_items_that_are_not_near_the_embedding(stub: SearchServiceStub) -> None:
    """The two lists are 01, 02, 00, 03 and 15, 17; equal ranks are ordered by id."""
    plain = await answered(stub)
    hybrid = await answered(stub, hybrid={"keywords": "cup"})

    assert ids(plain) == ["image-01", "image-02", "image-00", "image-03"]
    assert ids(hybrid) == ["image-01", "image-15", "image-02", "image-17"]
    assert not any(item.HasField("hybrid") for item in plain.items)
    first, second = hybrid.items[0].hybrid, hybrid.items[1].hybrid
    assert (first.similarity_rank, first.HasField("keyword_rank")) == (1, False)
    assert (second.keyword_rank, second.keyword_score) == (1, 1.0)
    assert not second.HasField("similarity_rank")
    assert hybrid.items[1].similarity == pytest.approx(math.cos(math.radians(13.8)), abs=1e-6)
    assert hybrid.items[1].score == pytest.approx(1 / 61 / 2)
    assert not hybrid.degradations


async def test_the_words_default_to_the_querys_text(
    stub: SearchServiceStub,
) -> None:
    response = await answered(stub, query={"text": "1 cup"}, hybrid={"keyword_weight": 1.0})

    assert ids(response)[:2] == ["image-15", "image-17"]


async def test_a_picture_with_words_finds_texts(stub: SearchServiceStub) -> None:
    response = await answered(
        stub, query={"image": b"1.2"}, retrieve_k=3, hybrid={"keywords": "cup"}
    )

    assert ids(response) == ["text-1", "text-cup", "text-2"]


async def test_the_cross_encoder_reranks_the_fused_list(
    behind: Stack, stub: SearchServiceStub
) -> None:
    for shard in behind.shards:
        shard.logits = {"image-17": 5.0}

    response = await answered(stub, hybrid={"keywords": "cup"}, rerank_disabled=False)

    assert response.items[0].item_id == "image-17"
    assert response.items[0].retrieve_rank == 4


async def test_further_pages_keep_the_places_of_the_first(stub: SearchServiceStub) -> None:
    whole = await answered(stub, hybrid={"keywords": "cup"})
    first = await answered(stub, hybrid={"keywords": "cup"}, return_n=1)

    second = await stub.SearchItems(
        pb.SearchItemsRequest(index_id="scenes", cursor=first.next_cursor, return_n=10)
    )

    assert [item.hybrid for item in second.items] == [item.hybrid for item in whole.items[1:]]


async def test_shards_without_words_degrade_the_answer(
    behind: Stack, stub: SearchServiceStub
) -> None:
    behind.shards[0].keyword_state = index_pb.KEYWORD_STATE_BEING_BUILT
    partial = await answered(stub, hybrid={"keywords": "cup"})
    behind.shards[1].keyword_state = index_pb.KEYWORD_STATE_DISABLED
    without = await answered(stub, hybrid={"keywords": "cup"})

    assert list(partial.degradations) == [pb.DEGRADATION_KEYWORDS_PARTIAL]
    assert list(without.degradations) == [pb.DEGRADATION_KEYWORDS_SKIPPED]
    assert ids(without) == ids(await answered(stub))
    assert [each.keyword_state for each in without.retrievals] == [
        index_pb.KEYWORD_STATE_BEING_BUILT,
        index_pb.KEYWORD_STATE_DISABLED,
    ]


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"query": content_pb2.Content(image=b"1"), "hybrid": {}}, errors.QueryInvalid),
        ({"hybrid": {"keywords": "x" * 8_193}}, errors.QueryInvalid),
        ({"hybrid": {"fusion": 9}}, errors.RankingInvalid),
        ({"hybrid": {"keyword_weight": 2.0}}, errors.RankingInvalid),
        (
            {"hybrid": {}, "adaptive_depth": True, "rerank_disabled": False},
            errors.RankingInvalid,
        ),
    ],
)
async def test_invalid_hybrid_searches_are_refused(
    stub: SearchServiceStub, fields: dict[str, object], refusal: type[errors.TandemError]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answered(stub, **fields)

    assert isinstance(error_from_rpc(caught.value, "orchestrator"), refusal)
