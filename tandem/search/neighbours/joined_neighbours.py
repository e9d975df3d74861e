"""Joins the neighbours that the shards found, and the query, into one graph.

In training the query is one of the corpus, so here it counts as an item of the index: it is its own
nearest item, and may be among the nearest of others. If the index already has it, it is not added.

Shapes: V nodes, the query first; L pillars; C neighbours; P all that the shards found; d.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.model_description import NeighbourModelDescription
from tandem.stages.neighbours import Graph, ModalityNeighbours, ShardNeighbours

_QUERY_NUMBER = 0
# From here on, an item is the query itself, encoded in another batch.
_SAME_SIMILARITY = 1.0 - 1e-5
_SHARD_BITS = 32

Embeddings = NDArray[np.float32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Holds the neighbours of one modality that all shards found."""

    pillars: Embeddings
    """[P, d], nearest to the query first."""
    numbers: Numbers
    """[V, P], each node's neighbours, in no order."""
    similarities: NDArray[np.float32]
    """[V, P]."""


def joined_graph(
    shards: Mapping[int, ShardNeighbours],
    nodes_VD: Embeddings,
    query_modality: Modality,
    fingerprint: str,
    model: NeighbourModelDescription,
) -> Graph | None:
    """Returns the graph; None if there are fewer items of a modality than the model reads."""
    item_modality = query_modality.other
    items = _found(shards, nodes_VD, item_modality)
    own = _with_query(_found(shards, nodes_VD, query_modality), nodes_VD)
    query_pillars = own.pillars[0 if model.includes_query_pillar else 1 :]
    pillar_counts = len(items.pillars), len(query_pillars)
    near_counts = items.numbers.shape[1], own.numbers.shape[1]
    if min(pillar_counts) < model.pillar_count or min(near_counts) < model.neighbour_count:
        return None
    return Graph(
        fingerprint,
        query_modality,
        nodes_VD,
        items.pillars[: model.pillar_count],
        query_pillars[: model.pillar_count],
        {
            query_modality: _nearest(own, model.neighbour_count),
            item_modality: _nearest(items, model.neighbour_count),
        },
    )


def _found(
    shards: Mapping[int, ShardNeighbours], nodes_VD: Embeddings, modality: Modality
) -> _Found:
    parts: list[ModalityNeighbours] = [found[modality] for found in shards.values()]
    pillars_PD = np.concatenate([part.pillars for part in parts])
    order_P = np.argsort(-(pillars_PD @ nodes_VD[0]), kind="stable")
    numbers = [
        (np.int64(shard) << _SHARD_BITS) + found[modality].numbers + 1
        for shard, found in shards.items()
    ]
    return _Found(
        pillars_PD[order_P],
        np.concatenate(numbers, axis=1),
        np.concatenate([part.similarities for part in parts], axis=1),
    )


def _with_query(found: _Found, nodes_VD: Embeddings) -> _Found:
    """Returns the neighbours of the query's modality, with the query as the first pillar."""
    nearest = found.similarities[0].max(initial=-1.0)
    if nearest >= _SAME_SIMILARITY:
        return found
    similarities_V1 = (nodes_VD @ nodes_VD[0])[:, None]
    return _Found(
        np.concatenate([nodes_VD[:1], found.pillars]),
        np.concatenate([np.full((len(nodes_VD), 1), _QUERY_NUMBER), found.numbers], axis=1),
        np.concatenate([similarities_V1, found.similarities], axis=1),
    )


def _nearest(found: _Found, count: int) -> Numbers:
    """Returns int64 [V, C]: the numbers of each node's nearest items, best first."""
    places_VC = np.argsort(-found.similarities, axis=1, kind="stable")[:, :count]
    numbers_VC: Numbers = np.take_along_axis(found.numbers, places_VC, axis=1)
    return numbers_VC
