"""ScoreGraph over a real Triton: the scores of the exported networks, and refusals by name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import grpc
import numpy as np
import pytest
import pytest_asyncio

from rerank_svc.servicer import RerankServicer
from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.contract.content import Modality
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.local.reranking.local_reranker import LocalReranker
from tandem.local.reranking.reranker import ModelReranker
from tandem.model_io.inference.served_neighbour_model import ServedNeighbourModel
from tandem.model_io.repository.neighbour_manifest import NeighbourModelManifest, neighbours_file
from tandem.triton.client import TritonClient
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.rerank_service_pb2_grpc import (
    RerankServiceStub,
    add_RerankServiceServicer_to_server,
)
from tandem.wire import embedding_to_proto
from tests.support.chassis.served import served
from tests.support.neighbours.served_corpus import (
    DIMENSION,
    FINGERPRINT,
    ServedCorpus,
    tiny_leaprr,
)
from tests.support.rerank_svc.served_reranker import undescribed

TIMEOUT_SECONDS = 20
CORPUS = ServedCorpus.made(20, 30, seed=3)
MODEL = tiny_leaprr("code")


@pytest.fixture
def manifest(served_models: Path) -> NeighbourModelManifest:
    return NeighbourModelManifest.read(neighbours_file(served_models))


@pytest_asyncio.fixture
async def stub(
    triton_client: TritonClient, manifest: NeighbourModelManifest
) -> AsyncIterator[RerankServiceStub]:
    async with scoring(ServedNeighbourModel(triton_client, manifest)) as stub:
        yield stub


@asynccontextmanager
async def scoring(scorer: ServedNeighbourModel | None) -> AsyncIterator[RerankServiceStub]:
    """Serves the scorer, and yields a stub that calls it."""
    reranker = LocalReranker(cast(ModelReranker, None), undescribed, scorer)  # scores graphs alone
    servicer = RerankServicer(reranker, TIMEOUT_SECONDS)
    register = partial(add_RerankServiceServicer_to_server, servicer)
    async with served(register, "rerank") as channel:
        yield RerankServiceStub(channel)


def order(query: np.ndarray, items: np.ndarray, count: int) -> list[int]:
    """Returns the places of the nearest."""
    return [int(place) for place in np.argsort(-(items @ query), kind="stable")[:count]]


def graph(modality: Modality, number: int, **fields: object) -> pb.ScoreGraphRequest:
    """Returns the graph of one query of the corpus, from its lists."""
    own, items = CORPUS.of(modality), CORPUS.of(modality.other)
    query = own[number]
    found = order(query, items, 5 if modality is Modality.TEXT else 9)
    embeddings = [query, *items[found]]
    wanted = {
        "model_fingerprint": FINGERPRINT,
        "query_modality": MODALITY_WIRE.to_proto(modality),
        "nodes": [
            pb.GraphNode(
                embedding=embedding_to_proto(each),
                near_texts=order(each, CORPUS.texts, 3),
                near_images=order(each, CORPUS.images, 3),
            )
            for each in embeddings
        ],
        "item_pillars": map(embedding_to_proto, items[order(query, items, 6)]),
        "query_pillars": map(embedding_to_proto, own[order(query, own, 6)]),
    } | fields
    return pb.ScoreGraphRequest(**wanted)


async def refusal(stub: RerankServiceStub, request: pb.ScoreGraphRequest) -> errors.TandemError:
    """Returns the error of a call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ScoreGraph(request, timeout=TIMEOUT_SECONDS)
    return error_from_rpc(caught.value, "rerank")


@pytest.mark.parametrize("modality", list(Modality))
async def test_served_scores_are_the_offline_ones(
    stub: RerankServiceStub, manifest: NeighbourModelManifest, modality: Modality
) -> None:
    """Of both directions, which share one Triton model; another query has others."""
    for number in (0, 4):
        offline = list(CORPUS.offline_scores(MODEL, modality, number).values())
        scored = await stub.ScoreGraph(graph(modality, number), timeout=TIMEOUT_SECONDS)

        assert scored.scores == pytest.approx(offline, abs=1e-5)
        assert scored.neighbour_model == manifest.fingerprint
        assert scored.cost.triton_compute_duration.ToNanoseconds() > 0
    other = list(CORPUS.offline_scores(MODEL, modality, 1).values())
    assert scored.scores != pytest.approx(other, abs=1e-3)


async def test_a_shorter_graph_is_padded(stub: RerankServiceStub) -> None:
    """What lies behind an item in the order has no part in its score but by attention."""
    request = graph(Modality.TEXT, 0)
    del request.nodes[3:]

    scored = await stub.ScoreGraph(request, timeout=TIMEOUT_SECONDS)

    assert len(scored.scores) == 2
    assert np.isfinite(scored.scores).all()


def broken(change: str) -> pb.ScoreGraphRequest:
    """Returns a graph with one thing wrong."""
    request = graph(Modality.TEXT, 0)
    match change:
        case "too many nodes":
            request.nodes.append(request.nodes[1])
        case "the query alone":
            del request.nodes[1:]
        case "no nodes":
            del request.nodes[:]
        case "too few pillars":
            del request.item_pillars[-1]
        case "no pillars":
            del request.query_pillars[:]
        case "shorter lists":
            for node in request.nodes:
                del node.near_texts[-1]
        case "lists of two lengths":
            del request.nodes[2].near_images[-1]
        case "an odd number":
            request.nodes[2].near_images[0] = 2**63
        case "NaN":
            values = np.full(DIMENSION, np.nan, np.float32).tobytes()
            request.nodes[2].embedding.values = values
        case "another width":
            unit = np.eye(1, DIMENSION + 1, dtype=np.float32)[0]
            for pillar in request.item_pillars:
                pillar.CopyFrom(embedding_to_proto(unit))
        case "no modality":
            request.query_modality = 0  # type: ignore[assignment]
        case "another model":
            request.model_fingerprint = "model-b"
        case "a rerank":
            request.query_similarities.extend([0.5] * 6)
        case "a rerank too short":
            request.query_similarities.extend([0.5] * 5)
        case "no cosine":
            request.query_similarities.extend([0.5] * 5 + [float("nan")])
    return request


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("too many nodes", errors.RequestMalformed),
        ("the query alone", errors.RequestMalformed),
        ("too few pillars", errors.RequestMalformed),
        ("shorter lists", errors.RequestMalformed),
        ("lists of two lengths", errors.RequestMalformed),
        ("an odd number", errors.RequestMalformed),
        ("NaN", errors.EmbeddingInvalid),
        ("another width", errors.EmbeddingInvalid),
        ("another model", errors.ModelMismatch),
        ("a rerank", errors.RequestMalformed),
        ("a rerank too short", errors.BatchSizeOutOfRange),
        ("no cosine", errors.EmbeddingInvalid),
    ],
)
async def test_a_graph_that_the_model_does_not_read_is_named(
    stub: RerankServiceStub, change: str, error: type[errors.TandemError]
) -> None:
    assert type(await refusal(stub, broken(change))) is error


async def test_a_service_without_a_neighbour_model_is_refused_by_name() -> None:
    async with scoring(None) as stub:
        error = await refusal(stub, graph(Modality.TEXT, 0))

    assert isinstance(error, errors.NeighbourModelMissing)
