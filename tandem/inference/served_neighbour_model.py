"""Calls a neighbour model (LeaPRR) in Triton: a graph in, a score for each of its items out."""

from dataclasses import dataclass

import numpy as np

from tandem.contract.inference_cost import InferenceCost
from tandem.inference.model_runner import ModelRunner, OutputSpec
from tandem.inference.neighbour_graph import graph_tensors
from tandem.repository.neighbour_manifest import NEIGHBOUR_MODEL, NeighbourModelManifest
from tandem.repository.priority import Priority
from tandem.stages.neighbours import Graph


@dataclass(frozen=True, slots=True)
class ScoredGraph:
    """Holds the scores of a graph's items, in their order, and their cost."""

    scores: list[float]
    cost: InferenceCost


class ServedNeighbourModel:
    """Scores graphs of both directions with one Triton model."""

    def __init__(self, runner: ModelRunner, manifest: NeighbourModelManifest) -> None:
        self.manifest = manifest
        self._runner = runner

    async def score(self, graph: Graph, timeout_seconds: float) -> ScoredGraph:
        """Returns the cosine of each item's node with the query's.

        Raises RequestMalformed for a graph that the model does not read, and errors as
        ModelRunner.infer.
        """
        tensors = graph_tensors(graph, self.manifest)
        answer = await self._runner.infer(
            NEIGHBOUR_MODEL,
            {
                "INPUT__0": tensors.features,
                "INPUT__1": tensors.affinity,
                "INPUT__2": tensors.mask,
            },
            [OutputSpec("OUTPUT__0", np.float32, tensors.mask.shape[1:])],
            timeout_seconds,
            Priority.RERANK,
        )
        scores_M = answer.arrays[0][0]
        cost = InferenceCost(
            triton_queue_seconds=answer.queue_seconds,
            triton_compute_seconds=answer.compute_seconds,
        )
        return ScoredGraph(scores_M[1 : len(graph.nodes)].tolist(), cost)
