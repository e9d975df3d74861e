"""Defines what reranking by neighbours asks of shards and of the neighbour model.

Shapes: V embeddings (the query, then candidates), P pool, L pillars, C neighbours, d dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.identifiers import check_fingerprint, check_index_id
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.limits import (
    MAX_NEIGHBOUR_CANDIDATE_COUNT,
    MAX_RETRIEVE_K,
    check_batch_size,
    check_k,
)
from tandem.errors import BatchSizeOutOfRange, EmbeddingInvalid
from tandem.stages.unit_length import check_unit_lengths

# Embeddings are unit vectors within a tolerance, so a product may slightly exceed 1.
_MAX_COSINE = 1.01


@dataclass(frozen=True, slots=True, eq=False)
class ShardNeighbourQuery:
    """Describes a request for the neighbours that one shard has of a query and its candidates.

    Raises IndexIdInvalid, RequestMalformed, KOutOfRange, BatchSizeOutOfRange, EmbeddingInvalid.
    """

    index_id: str
    fingerprint: str
    nodes: NDArray[np.float32]
    """[V, d], the query, then its candidates."""
    pool_k: int
    """Items of each modality, nearest to the query, among which neighbours are found."""
    pillar_k: int
    neighbour_k: int

    def __post_init__(self) -> None:
        check_index_id(self.index_id)
        check_fingerprint(self.fingerprint)
        check_k("pool_k", self.pool_k, MAX_RETRIEVE_K)
        check_k("pillar_k", self.pillar_k, self.pool_k)
        check_k("neighbour_k", self.neighbour_k, self.pool_k)
        if (count := len(self.nodes) - 1) > MAX_NEIGHBOUR_CANDIDATE_COUNT:
            raise BatchSizeOutOfRange(
                name="candidates", got=count, low=0, high=MAX_NEIGHBOUR_CANDIDATE_COUNT
            )
        check_unit_lengths(self.nodes)

    @property
    def query_D(self) -> NDArray[np.float32]:
        """Returns the query's embedding."""
        query_D: NDArray[np.float32] = self.nodes[0]
        return query_D


@dataclass(frozen=True, slots=True, eq=False)
class ModalityNeighbours:
    """Holds the neighbours of one modality that a shard found; a small shard has fewer."""

    pillars: NDArray[np.float32]
    """[L, d], nearest to the query, best first."""
    numbers: NDArray[np.int64]
    """[V, C], each node's nearest items, best first; a number is the same item in all lists."""
    similarities: NDArray[np.float32]
    """[V, C]."""

    @classmethod
    def within(
        cls,
        query: ShardNeighbourQuery,
        pool_PD: NDArray[np.float32],
        numbers_P: NDArray[np.int64],
    ) -> Self:
        """Returns the neighbours among a pool of items, the nearest to the query first."""
        similarities_VP = query.nodes @ pool_PD.T
        places_VC = _nearest(similarities_VP, query.neighbour_k)
        return cls(
            pool_PD[: query.pillar_k],
            numbers_P[places_VC],
            np.take_along_axis(similarities_VP, places_VC, axis=1),
        )


ShardNeighbours: TypeAlias = Mapping[Modality, ModalityNeighbours]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Holds a query, its items and their neighbours, as a neighbour model reads them.

    Raises BatchSizeOutOfRange and EmbeddingInvalid.
    """

    fingerprint: str
    """Of the model that made the embeddings."""
    query_modality: Modality
    nodes: NDArray[np.float32]
    """[V, d], the query, then its items."""
    item_pillars: NDArray[np.float32]
    """[L, d]."""
    query_pillars: NDArray[np.float32]
    """[L, d]."""
    near: Mapping[Modality, NDArray[np.int64]]
    """[V, C], each node's nearest items of that modality; each item has one number."""
    query_similarities: NDArray[np.float32] | None = None
    """[max(V - 1, L)], the query's to its items or item pillars, as the model knows them, the
    highest first; None for those of the embeddings."""

    def __post_init__(self) -> None:
        for name, embeddings, high in [
            ("nodes", self.nodes, 1 + MAX_NEIGHBOUR_CANDIDATE_COUNT),
            ("item_pillars", self.item_pillars, MAX_RETRIEVE_K),
            ("query_pillars", self.query_pillars, MAX_RETRIEVE_K),
        ]:
            check_batch_size(name, len(embeddings), high)
            if embeddings.shape[1] != self.nodes.shape[1]:
                raise EmbeddingInvalid(why="nodes and pillars have different dimensions")
            check_unit_lengths(embeddings)
        if (given := self.query_similarities) is not None:
            high = max(len(self.nodes) - 1, len(self.item_pillars))
            if len(given) != high:
                raise BatchSizeOutOfRange(
                    name="query_similarities", got=len(given), low=high, high=high
                )
            if not (np.abs(given) <= _MAX_COSINE).all():  # also true of NaN
                raise EmbeddingInvalid(why="query_similarities has a value that is no cosine")


@dataclass(frozen=True, slots=True)
class GraphScores:
    """Holds the scores of a graph's items, in their order."""

    scores: Sequence[float]
    neighbour_model: str
    cost: InferenceCost = field(default_factory=InferenceCost)


def _nearest(similarities_VP: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Returns int64 [V, C]: the places of each row's highest values, best first."""
    pool_count = similarities_VP.shape[1]
    if count >= pool_count:
        return np.argsort(-similarities_VP, axis=1, kind="stable")
    found_VC = np.argpartition(-similarities_VP, count - 1, axis=1)[:, :count]
    found_VC.sort(axis=1)  # so that equal ones keep the pool's order
    order_VC = np.argsort(-np.take_along_axis(similarities_VP, found_VC, axis=1), kind="stable")
    places_VC: NDArray[np.int64] = np.take_along_axis(found_VC, order_VC, axis=1)
    return places_VC
