"""Searches whose rerank_svc asks a remote cross-encoder: from the query's content to the answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from rerank_svc.servicer import RerankServicer
from tandem.contract.content import ImageContent, Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.answer_names import RerankStopReason
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.query import Depth, SearchQuery, StoredItem, WeightedPart
from tandem.local.reranking.local_reranker import LocalReranker
from tandem.local.reranking.remote.pictures import data_uri
from tandem.v1.rerank_service_pb2_grpc import add_RerankServiceServicer_to_server
from tests.support.orchestrator_svc.downstream import FINGERPRINT, Stack, ingest, stack
from tests.support.rerank_svc.remote_api import RemoteApi, Sabotage, probability, remote_api
from tests.support.rerank_svc.remote_shard import PICTURES, RemoteShard, reranker_of
from tests.support.rerank_svc.served_reranker import INDEX_ID, undescribed

NAMES = list(PICTURES)
"""In the bi-encoder's order: item i-3 is at 3 degrees, and the query at 0."""


@asynccontextmanager
async def searching(folder: Path) -> AsyncIterator[tuple[RemoteApi, Stack]]:
    """Yields an API and an orchestrator whose only shard has the items of both stores."""
    with remote_api() as api:
        shard = RemoteShard(folder / "shard", FINGERPRINT)
        async with reranker_of(api, shard, batch_size=3) as reranker:
            servicer = RerankServicer(LocalReranker(reranker, undescribed), 10.0)

            def add(server: grpc.aio.Server) -> None:
                add_RerankServiceServicer_to_server(servicer, server)

            async with stack(1, reranker=add) as behind:
                items = [
                    IncomingItem(name, ImageContent(str(n).encode()))
                    for n, name in enumerate(NAMES)
                ]
                assert not any((await ingest(behind.ingester, items)).outcomes)
                yield api, behind


async def search(
    behind: Stack, source: TextContent | StoredItem, seconds: float = 10.0
) -> SearchResult:
    query = SearchQuery(
        parts=(WeightedPart(source),),
        index_id=INDEX_ID,
        target_modality=Modality.IMAGE,
        depth=Depth(6, 6, 6),
    )
    return await behind.searcher.search(query, Deadline.after(seconds))


def ids(answer: SearchResult) -> list[str]:
    return [item.item_id for item in answer.items]


@pytest.mark.parametrize("has_own_cross_encoder", [True, False])
async def test_the_remote_order_is_the_answers(tmp_path: Path, has_own_cross_encoder: bool) -> None:
    """It reads the query's text and the stored pictures, and the answer names it; the index's model
    may be a bi-encoder alone, such as CLIP.
    """
    async with searching(tmp_path) as (api, behind):
        behind.encoder.has_cross_encoder = has_own_cross_encoder
        answer = await search(behind, TextContent("0"))

    assert answer.rerank.stop is RerankStopReason.COMPLETE
    assert answer.rerank.reranker.startswith("m@")
    assert api.document_counts == [3, 3]
    assert {each["query"] for each in api.requests} == {"0"}
    scores = {name: probability("0", data_uri(file, 1024)) for name, file in PICTURES.items()}
    assert ids(answer) == sorted(NAMES, key=lambda name: -scores[name]) != NAMES


@pytest.mark.parametrize(
    ("sabotage", "stop"),
    [
        (Sabotage.ERROR_500, RerankStopReason.UNAVAILABLE),
        (Sabotage.FEWER, RerankStopReason.OUTPUT_INVALID),
        (Sabotage.BUSY, RerankStopReason.OVERLOADED),
    ],
)
async def test_a_failing_api_leaves_the_bi_encoders_order(
    tmp_path: Path, sabotage: Sabotage, stop: RerankStopReason
) -> None:
    """The answer says what happened to the rerank."""
    async with searching(tmp_path) as (api, behind):
        api.sabotage = sabotage
        answer = await search(behind, TextContent("0"), seconds=30.0)

    assert_as_retrieved(answer, stop)


def assert_as_retrieved(answer: SearchResult, stop: RerankStopReason) -> None:
    """The response has the bi-encoder's order and the reason."""
    assert (ids(answer), answer.rerank.stop) == (NAMES, stop)
    assert answer.rerank.reranker == ""
    assert [each.name for each in answer.degradations]


async def test_a_query_without_a_content_is_not_reranked(tmp_path: Path) -> None:
    """A stored item has tokens here, which the remote model does not read."""
    async with searching(tmp_path) as (api, behind):
        text = [IncomingItem("words", TextContent("0"))]
        assert not any((await ingest(behind.ingester, text)).outcomes)
        answer = await search(behind, StoredItem("words"))

    assert answer.rerank.stop is RerankStopReason.NOT_APPLICABLE
    assert ids(answer) == NAMES
    assert not answer.degradations
    assert not api.requests
