"""Scores graphs of neighbours with the served neighbour model."""

from tandem.contract.model_description import NeighbourModelDescription
from tandem.errors import ModelMismatch
from tandem.local.reranking.metrics import count_cost
from tandem.model_io.inference.served_neighbour_model import ServedNeighbourModel
from tandem.stages.neighbours import Graph, GraphScores


class NeighbourScorer:
    """Scores graphs of the embeddings that the neighbour model was trained over."""

    def __init__(self, model: ServedNeighbourModel) -> None:
        self._model = model

    def describe(self) -> NeighbourModelDescription:
        """Returns what callers need to know."""
        return self._model.manifest.describe()

    async def score(self, graph: Graph, timeout_seconds: float) -> GraphScores:
        """Returns the scores of the graph's items.

        Raises ModelMismatch for embeddings of another model, RequestMalformed for a graph that the
        model does not read, and errors of Triton.
        """
        base = self._model.manifest.base_fingerprint
        if graph.fingerprint != base:
            raise ModelMismatch(request=graph.fingerprint, index=base)
        scored = await self._model.score(graph, timeout_seconds)
        count_cost(scored.cost)
        return scored
