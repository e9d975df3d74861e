"""Scores graphs of neighbours with the served neighbour model."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rerank_svc.metrics import count_cost
from tandem.contract.content import Modality
from tandem.contract.limits import MAX_NEIGHBOUR_CANDIDATE_COUNT, MAX_RETRIEVE_K
from tandem.contract.model_description import NeighbourModelDescription
from tandem.errors import BatchSizeOutOfRange, EmbeddingInvalid, ModelMismatch, RequestMalformed
from tandem.model_io.neighbour_graph import NeighbourGraph
from tandem.model_io.served_neighbour_model import ScoredGraph, ServedNeighbourModel
from tandem.v1 import content_pb2, rerank_service_pb2
from tandem.wire import embeddings_from_proto, modality_from_proto


class NeighbourScorer:
    """Scores graphs of the embeddings that the neighbour model was trained over."""

    def __init__(self, model: ServedNeighbourModel) -> None:
        self._model = model

    @property
    def fingerprint(self) -> str:
        """Returns the neighbour model's fingerprint."""
        return self._model.manifest.fingerprint

    def describe(self) -> NeighbourModelDescription:
        """Returns what callers need to know."""
        return self._model.manifest.describe()

    async def score(
        self, graph: NeighbourGraph, fingerprint: str, timeout_seconds: float
    ) -> ScoredGraph:
        """Returns the scores of the graph's items.

        Raises ModelMismatch for embeddings of another model, RequestMalformed for a graph that the
        model does not read, and errors of Triton.
        """
        if fingerprint != self._model.manifest.base_fingerprint:
            raise ModelMismatch(request=fingerprint, index=self._model.manifest.base_fingerprint)
        scored = await self._model.score(graph, timeout_seconds)
        count_cost(scored.cost)
        return scored


def graph_from_proto(request: rerank_service_pb2.ScoreGraphRequest) -> NeighbourGraph:
    """Returns the graph; raises RequestMalformed, BatchSizeOutOfRange and EmbeddingInvalid."""
    modality = modality_from_proto(request.query_modality)
    if modality is None:
        raise RequestMalformed(why="query_modality is neither MODALITY_TEXT nor MODALITY_IMAGE")
    nodes = _embeddings(
        "nodes", [node.embedding for node in request.nodes], 1 + MAX_NEIGHBOUR_CANDIDATE_COUNT
    )
    pillars = {
        name: _embeddings(name, messages, MAX_RETRIEVE_K)
        for name, messages in [
            ("item_pillars", request.item_pillars),
            ("query_pillars", request.query_pillars),
        ]
    }
    if any(each.shape[1] != nodes.shape[1] for each in pillars.values()):
        raise EmbeddingInvalid(why="nodes and pillars have different dimensions")
    return NeighbourGraph(
        modality is Modality.TEXT,
        nodes,
        pillars["item_pillars"],
        pillars["query_pillars"],
        _numbers("near_texts", [node.near_texts for node in request.nodes]),
        _numbers("near_images", [node.near_images for node in request.nodes]),
    )


def _embeddings(
    name: str, messages: Sequence[content_pb2.Embedding], high: int
) -> NDArray[np.float32]:
    if not 1 <= len(messages) <= high:
        raise BatchSizeOutOfRange(name=name, got=len(messages), low=1, high=high)
    return embeddings_from_proto(messages)


def _numbers(name: str, lists: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    rows = [list(numbers) for numbers in lists]
    if len({len(row) for row in rows}) != 1:
        raise RequestMalformed(why=f"{name} of two nodes have different lengths")
    if any(number >= 2**63 for row in rows for number in row):
        raise RequestMalformed(why=f"{name} has a number of 2^63 or more")
    return np.array(rows, np.int64)
