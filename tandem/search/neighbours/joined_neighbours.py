"""Joins the neighbours that the shards found, and the query, into one graph.

In training the query is one of the corpus, so here it counts as an item of the index: it is its own
nearest item, and may be among the nearest of others. If the index already has it, it is not added.

Over a rerank, the query's nearest items are those of the cross-encoder's order: its first K items
exchange their similarities to it, so that the first of that order has the highest.

Shapes: V nodes, the query first; L pillars; C neighbours; P all that the shards found; K rerank_k.
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
# By which the similarity of one pair differs between two products.
_NOISE = 1e-6
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
    pool_KD: Embeddings | None = None,
) -> Graph | None:
    """Returns the graph; None if there are fewer items of a modality than the model reads.

    `pool_KD` are the reranked items in the cross-encoder's order, with which `nodes_VD` begins
    after the query.
    """
    item_modality, query_D = query_modality.other, nodes_VD[0]
    items = _found(shards, nodes_VD, item_modality)
    if items.numbers.shape[1] < model.neighbour_count:
        return None
    similarities_V = nodes_VD @ query_D
    pillars_PD, near_VC = items.pillars, _nearest(items, model.neighbour_count)
    known: NDArray[np.float32] | None = None
    item_count = model.item_count(query_modality)
    if pool_KD is not None:
        shared_K = np.sort(pool_KD @ query_D)[::-1]
        pillars_PD = np.concatenate([pool_KD, pillars_PD[len(pool_KD) :]])
        similarities_V[1 : 1 + len(pool_KD)] = shared_K[: len(nodes_VD) - 1]
        rest_P = pillars_PD[len(pool_KD) : model.pillar_count] @ query_D
        of_pillars = np.concatenate([shared_K, rest_P])[: model.pillar_count]
        of_items = similarities_V[1 : 1 + item_count]
        known = max(of_pillars, of_items, key=len)
        if model.neighbour_count < len(pool_KD):
            near_VC[0] = _itself(items)[1 : 1 + model.neighbour_count]
    own = _with_query(_found(shards, nodes_VD, query_modality), nodes_VD, similarities_V)
    query_pillars = own.pillars[0 if model.includes_query_pillar else 1 :]
    own_count = np.isfinite(own.similarities).sum(axis=1).min()
    if (
        min(len(pillars_PD), len(query_pillars)) < model.pillar_count
        or own_count < model.neighbour_count
    ):
        return None
    near = {item_modality: near_VC, query_modality: _nearest(own, model.neighbour_count)}
    return Graph(
        fingerprint,
        query_modality,
        nodes_VD[: 1 + item_count],
        pillars_PD[: model.pillar_count],
        query_pillars[: model.pillar_count],
        {modality: near_VC[: 1 + item_count] for modality, near_VC in near.items()},
        known,
    )


def are_nearest(
    shards: Mapping[int, ShardNeighbours],
    pool_KD: Embeddings,
    query_D: Embeddings,
    modality: Modality,
) -> bool:
    """Returns whether no item of that modality but these is as near to the query as they are."""
    lowest = (pool_KD @ query_D).min() + _NOISE
    nearer = sum(int((each[modality].pillars @ query_D > lowest).sum()) for each in shards.values())
    return nearer < len(pool_KD)


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


def _with_query(found: _Found, nodes_VD: Embeddings, similarities_V: NDArray[np.float32]) -> _Found:
    """Returns the neighbours of the query's modality, with the query as the first pillar.

    `similarities_V` are those of the query to the nodes, also where the index has the query.
    """
    number, pillars = _QUERY_NUMBER, np.concatenate([nodes_VD[:1], found.pillars])
    similarities_VP = found.similarities
    if similarities_VP[0].max(initial=-1.0) >= _SAME_SIMILARITY:
        number, pillars = int(_itself(found)[0]), found.pillars
        similarities_VP = np.where(found.numbers == number, -np.inf, similarities_VP)
    column_V1 = np.full((len(nodes_VD), 1), number)
    return _Found(
        pillars,
        np.concatenate([column_V1, found.numbers], axis=1),
        np.concatenate([similarities_V[:, None], similarities_VP], axis=1),
    )


def _itself(found: _Found) -> Numbers:
    """Returns int64 [V]: the number of the item nearest to each node, which is the node's own."""
    numbers: Numbers = _nearest(found, 1)[:, 0]
    return numbers


def _nearest(found: _Found, count: int) -> Numbers:
    """Returns int64 [V, C]: the numbers of each node's nearest items, best first."""
    places_VC = np.argsort(-found.similarities, axis=1, kind="stable")[:, :count]
    numbers_VC: Numbers = np.take_along_axis(found.numbers, places_VC, axis=1)
    return numbers_VC
