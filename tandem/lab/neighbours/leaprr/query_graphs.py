"""Makes graphs: a query and its nearest items, each a row of similarities to the same pillars.

Pillars are chosen for a query: its nearest items (inter) and its nearest of its own modality
(intra), and all nodes of its graph are compared with them (Qu et al. 2023, section 3.2). Shapes:
B graphs, K items, V = 1 + K nodes, L pillars of one modality, F = 2 L.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.lab.neighbours.leaprr.config import LeaprrConfig
from tandem.lab.neighbours.lists.neighbour_lists import Indices, SimilarityLists
from tandem.model_io.inference.neighbour_affinity import neighbour_affinity

_NO_ITEM = -1


@dataclass(frozen=True, slots=True)
class QueryGraphs:
    """Holds a batch of graphs of one direction; node 0 is the query."""

    queries: Indices
    """int64 [B]."""
    items: Indices
    """int64 [B, K], the nearest first; -1 where a corpus has fewer."""
    features: NDArray[np.float32]
    """[B, V, F]: inter pillars, then intra pillars; 0 for a node that is not valid."""
    affinity: NDArray[np.float32]
    """[B, V, V]."""
    targets: NDArray[np.bool_]
    """[B, V], whether an item answers the query; False for the query."""
    valid: NDArray[np.bool_]
    """[B, V]."""


def needed_depth(config: LeaprrConfig) -> int:
    """Returns how many entries lists must have, or graphs lack pillars or compared neighbours."""
    # A query that is no pillar of its own is an entry of its list nevertheless.
    pillar_count = config.pillar_count + (0 if config.includes_query_pillar else 1)
    return max(pillar_count, config.affinity_neighbours)


def query_graphs(
    lists: SimilarityLists,
    queries_B: Indices,
    neighbour_count: int,
    config: LeaprrConfig,
    threshold_nodes: int | None = None,
) -> QueryGraphs:
    """Returns the graphs of these queries with their `neighbour_count` nearest items.

    Lists must have `needed_depth` entries.
    """
    found_BK = lists.found_items(queries_B)[:, :neighbour_count]
    items_BK = np.full((len(queries_B), neighbour_count), _NO_ITEM)
    items_BK[:, : found_BK.shape[1]] = found_BK
    valid_BV = np.concatenate([np.ones((len(queries_B), 1), np.bool_), items_BK != _NO_ITEM], 1)
    near_queries, near_items = _nearest_of_nodes(
        lists, queries_B, items_BK, config.affinity_neighbours
    )
    affinity = neighbour_affinity(
        near_queries, near_items, valid_BV, config.affinity_sharpness, threshold_nodes
    )
    answers_BK = lists.item_images[items_BK] == lists.query_images[queries_B, None]
    targets_BV = np.concatenate([np.zeros((len(queries_B), 1), np.bool_), answers_BK], axis=1)
    return QueryGraphs(
        queries_B,
        items_BK,
        pillar_features(lists, queries_B, items_BK, config),
        affinity.astype(np.float32),
        targets_BV & valid_BV,
        valid_BV,
    )


def mapped_graphs(
    graphs: QueryGraphs,
    lists: SimilarityLists,
    queries_B: Indices,
    config: LeaprrConfig,
    rng: np.random.Generator,
) -> QueryGraphs:
    """Returns `graphs` with each node replaced by its counterpart of the other modality.

    A text's counterpart is its image, and an image's is one of its texts at random. Affinity and
    targets stay. `lists` is the direction of the result, and `queries_B` are its queries. Pillars
    are those of the new query: what the authors chose is not published.
    """
    drawn_BK = _drawn_items(lists, lists.query_images[graphs.items], rng)
    items_BK = np.where(graphs.items == _NO_ITEM, _NO_ITEM, drawn_BK)
    features = pillar_features(lists, queries_B, items_BK, config)
    return QueryGraphs(queries_B, items_BK, features, graphs.affinity, graphs.targets, graphs.valid)


def pillar_features(
    lists: SimilarityLists, queries_B: Indices, items_BK: Indices, config: LeaprrConfig
) -> NDArray[np.float32]:
    """Returns float32 [B, V, F]: similarities of all nodes to their query's pillars."""
    count = config.pillar_count
    inter_BL = _chosen(lists.found_items(queries_B), queries_B, config)
    intra_BL = _intra_pillars(lists, queries_B, config)
    query_BF = np.concatenate(
        [
            lists.found_similarities(queries_B, inter_BL),
            lists.queries[queries_B[:, None], intra_BL],
        ],
        axis=1,
    )
    # Another query's own order of these items is not known to this one's search.
    is_itself_B1L = (intra_BL == queries_B[:, None])[:, None, :]
    to_itself_BK1 = lists.found_similarities(queries_B, items_BK)[:, :, None]
    to_intra_BKL = lists.cross[intra_BL[:, None, :], items_BK[:, :, None]]
    items_BKF = np.concatenate(
        [
            lists.items[items_BK[:, :, None], inter_BL[:, None, :]],
            np.where(is_itself_B1L, to_itself_BK1, to_intra_BKL),
        ],
        axis=2,
    )
    items_BKF = np.where((items_BK == _NO_ITEM)[:, :, None], 0, items_BKF)
    features_BVF = np.concatenate([query_BF[:, None], items_BKF], axis=1).astype(np.float32)
    if config.pillar_modality == "inter":
        features_BVF[:, :, count:] = 0
    if config.pillar_modality == "intra":
        features_BVF[:, :, :count] = 0
    return features_BVF


def _intra_pillars(lists: SimilarityLists, queries_B: Indices, config: LeaprrConfig) -> Indices:
    """Returns int64 [B, L]: the nearest of a query's own modality, itself among them or not."""
    near_BH = lists.queries_of_query[queries_B]
    if not config.includes_query_pillar:
        # A stable sort of False before True moves the query itself to the end.
        itself_BH = near_BH == queries_B[:, None]
        order_BH = np.argsort(itself_BH, axis=1, kind="stable")
        near_BH = np.take_along_axis(near_BH, order_BH, axis=1)[:, :-1]
    return _chosen(near_BH, queries_B, config)


def _chosen(near_BH: Indices, queries_B: Indices, config: LeaprrConfig) -> Indices:
    """Returns int64 [B, L]: the first entries of lists, the last ones, or some at random.

    Those at random are the same for a query in every batch.
    """
    count = config.pillar_count
    if config.pillar_rank == "top":
        return near_BH[:, :count]
    if config.pillar_rank == "bottom":
        return near_BH[:, max(near_BH.shape[1] - count, 0) :]
    drawn_BH = np.stack(
        [np.random.default_rng(query).random(near_BH.shape[1]) for query in queries_B.tolist()]
    )
    places_BL = np.sort(np.argsort(drawn_BH, axis=1)[:, :count], axis=1)
    return np.take_along_axis(near_BH, places_BL, axis=1)


def _nearest_of_nodes(
    lists: SimilarityLists, queries_B: Indices, items_BK: Indices, count: int
) -> tuple[Indices, Indices]:
    """Returns int64 [B, V, C] twice: each node's nearest of the queries' and items' modality."""
    queries_of_item_BKC = lists.queries_of_item[items_BK, :count]
    if lists.query_pools is not None:
        queries_of_item_BKC = _with_query(lists, queries_B, items_BK, count)
    of_query_BC = lists.queries_of_query[queries_B, :count]
    items_of_query_BC = lists.found_items(queries_B)[:, :count]
    return (
        np.concatenate([of_query_BC[:, None], queries_of_item_BKC], axis=1),
        np.concatenate([items_of_query_BC[:, None], lists.items_of_item[items_BK, :count]], axis=1),
    )


def _with_query(
    lists: SimilarityLists, queries_B: Indices, items_BK: Indices, count: int
) -> Indices:
    """Returns int64 [B, K, C]: each item's nearest queries, with its own as its search knows it."""
    near_BKE = lists.queries_of_item[items_BK, : count + 1]  # one may fall behind
    similarity_BKE = lists.cross[near_BKE, items_BK[:, :, None]]
    similarity_BKE[near_BKE == queries_B[:, None, None]] = -np.inf
    own_BK = lists.found_similarities(queries_B, items_BK)
    queries_BK = np.broadcast_to(queries_B[:, None], items_BK.shape)
    all_BKE = np.concatenate([near_BKE, queries_BK[:, :, None]], axis=2)
    scores_BKE = np.concatenate([similarity_BKE, own_BK[:, :, None]], axis=2)
    nearest: Indices = np.take_along_axis(
        all_BKE, np.argsort(-scores_BKE, axis=2, kind="stable")[:, :, :count], axis=2
    )
    return nearest


def _drawn_items(lists: SimilarityLists, images_BK: Indices, rng: np.random.Generator) -> Indices:
    """Returns int64 [B, K]: one item at random of each image."""
    by_image_N = np.argsort(lists.item_images, kind="stable")
    sorted_images_N = lists.item_images[by_image_N]
    first_BK = np.searchsorted(sorted_images_N, images_BK, side="left")
    count_BK = np.searchsorted(sorted_images_N, images_BK, side="right") - first_BK
    return by_image_N[first_BK + rng.integers(0, count_BK)]
