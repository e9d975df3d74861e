"""Calls a neighbour model (LeaPRR): a graph in, a score for each of its items out.

A node's features are its similarities to the pillars, first those of the items' modality. Affinity
is made by the code that training uses.

Shapes: V nodes of a graph, the query first; M nodes that the model reads; L pillars of a modality;
C neighbours of a modality; F = 2 L; d dimensions.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.inference_cost import InferenceCost
from tandem.errors import RequestMalformed
from tandem.model_io.inference.model_runner import ModelRunner, OutputSpec
from tandem.model_io.inference.neighbour_affinity import Indices, neighbour_affinity
from tandem.model_io.repository.neighbour_manifest import (
    NEIGHBOUR_MODEL,
    NeighbourDirection,
    NeighbourModelManifest,
)
from tandem.model_io.repository.priority import Priority
from tandem.stages.neighbours import Graph, GraphScores


class ServedNeighbourModel:
    """Scores graphs of both directions with one Triton model."""

    def __init__(self, runner: ModelRunner, manifest: NeighbourModelManifest) -> None:
        self.manifest = manifest
        self._runner = runner

    async def score(self, graph: Graph, timeout_seconds: float) -> GraphScores:
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
        scores = scores_M[1 : len(graph.nodes)].tolist()
        return GraphScores(scores, self.manifest.fingerprint, cost)


@dataclass(frozen=True, slots=True, eq=False)
class GraphTensors:
    """Holds a graph as the model reads it; nodes that it lacks are masked."""

    features: NDArray[np.float32]
    """[1, M, F]."""
    affinity: NDArray[np.float32]
    """[1, M, M]."""
    mask: NDArray[np.int64]
    """[1, M], 1 for a node of the graph."""


def graph_tensors(graph: Graph, manifest: NeighbourModelManifest) -> GraphTensors:
    """Returns the tensors; raises RequestMalformed for a graph that the model does not read."""
    direction = manifest.direction(is_text_query=graph.query_modality is Modality.TEXT)
    _check(graph, manifest, direction)
    node_count, model_count = len(graph.nodes), direction.node_count
    pillars_FD = np.concatenate([graph.item_pillars, graph.query_pillars])
    features_MF = np.zeros((model_count, len(pillars_FD)), np.float32)
    features_MF[:node_count] = graph.nodes @ pillars_FD.T
    if (known := graph.query_similarities) is not None:
        features_MF[0, : manifest.pillar_count] = known[: manifest.pillar_count]
        if manifest.includes_query_pillar:
            features_MF[1:node_count, manifest.pillar_count] = known[: node_count - 1]
    valid_M = np.arange(model_count) < node_count
    affinity_1MM = neighbour_affinity(
        _padded(graph.near[Modality.IMAGE], model_count)[None],
        _padded(graph.near[Modality.TEXT], model_count)[None],
        valid_M[None],
        manifest.affinity_sharpness,
        direction.threshold_nodes,
    )
    return GraphTensors(
        features_MF[None], affinity_1MM.astype(np.float32), valid_M[None].astype(np.int64)
    )


def _check(graph: Graph, manifest: NeighbourModelManifest, direction: NeighbourDirection) -> None:
    node_count = len(graph.nodes)
    if not 2 <= node_count <= 1 + direction.item_count:
        raise RequestMalformed(
            why=f"the graph has {node_count} nodes; send the query and 1 to "
            f"{direction.item_count} items"
        )
    for name, pillars in [("item", graph.item_pillars), ("query", graph.query_pillars)]:
        if len(pillars) != manifest.pillar_count:
            raise RequestMalformed(
                why=f"there are {len(pillars)} {name} pillars instead of {manifest.pillar_count}"
            )
    if (graph.query_similarities is None) == bool(manifest.rerank_k):
        raise RequestMalformed(
            why=f"query_similarities are given and the model's rerank_k is {manifest.rerank_k}, or "
            "neither; give them for a model over a rerank, and only then"
        )
    for modality, near in graph.near.items():
        if near.shape != (node_count, manifest.neighbour_count):
            raise RequestMalformed(
                why=f"near {modality.value}s have the shape {near.shape} instead of "
                f"{(node_count, manifest.neighbour_count)}"
            )


def _padded(near_VC: Indices, count: int) -> Indices:
    padded_MC = np.zeros((count, near_VC.shape[1]), np.int64)
    padded_MC[: len(near_VC)] = near_VC
    return padded_MC
