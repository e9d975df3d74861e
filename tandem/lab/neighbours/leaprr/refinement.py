"""Orders a corpus by a trained network a direction.

Shapes: I images, T texts, Q queries, N items, K neighbours, B batch.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from tandem.lab.evaluation.ranking import Order, rerank_order, retrieve_order
from tandem.lab.neighbours.leaprr.config import LeaprrConfig
from tandem.lab.neighbours.leaprr.network import GraphNetwork
from tandem.lab.neighbours.leaprr.query_graphs import query_graphs
from tandem.lab.neighbours.lists.neighbour_lists import Indices, Scores, SimilarityLists

Networks = Literal["both", "image_queries", "text_queries"]

_BATCH_SIZE = 256


@dataclass(frozen=True, slots=True)
class LeaprrModel:
    """Holds the networks of both directions, and how they were configured."""

    config: LeaprrConfig
    image_queries: GraphNetwork
    """Scores the texts of an image."""
    text_queries: GraphNetwork
    """Scores the images of a text."""

    @classmethod
    def untrained(cls, config: LeaprrConfig, seed: int) -> "LeaprrModel":
        """Makes both networks with random weights, without touching torch's own generator."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(config, GraphNetwork(config), GraphNetwork(config))


@dataclass(frozen=True, slots=True)
class RefinedOrders:
    """Holds complete orders of both directions."""

    texts_of_image: Order
    """int64 [I, T]."""
    images_of_text: Order
    """int64 [T, I]."""


def refine(
    model: LeaprrModel, lists: SimilarityLists, networks: Networks = "both"
) -> RefinedOrders:
    """Returns the orders of a corpus whose `lists` are the view of images that find texts.

    As the code does, refined scores of both directions replace raw similarities and are averaged
    over the whole matrix; an item that neither network scored keeps its similarity and may so
    overtake one that they did. As the paper does, each direction reorders its own neighbours and
    the rest follows in the base order. With only one of the `networks`, the raw similarities stand
    in for the other's scores (Table 3).
    """
    if not model.config.averages_whole_matrix:
        return refine_as_served(model, lists, networks)
    refined = [
        _with_scores(view, *refined_scores(model, view, is_text_query=is_text), is_text)
        for view, is_text in _directions(lists, networks)
    ]
    final_IT: Scores = np.mean(refined, axis=0)
    return RefinedOrders(retrieve_order(final_IT), retrieve_order(final_IT.T))


def refine_as_served(
    model: LeaprrModel, lists: SimilarityLists, networks: Networks = "both"
) -> RefinedOrders:
    """Returns each query's own items reordered by its direction's network, and the rest after them.

    A search knows one query, so this is how its items are ordered in whichever profile, and how the
    paper's profile orders a corpus.
    """
    orders = [retrieve_order(view.found()) for view in (lists, lists.reversed())]
    for view, is_text_query in _directions(lists, networks):
        scored = refined_scores(model, view, is_text_query=is_text_query)
        orders[is_text_query] = _reordered_pool(orders[is_text_query], *scored)
    return RefinedOrders(*orders)


def _directions(lists: SimilarityLists, networks: Networks) -> list[tuple[SimilarityLists, bool]]:
    """Returns the views whose queries a network scores, and whether these are texts."""
    views = [("image_queries", lists, False), ("text_queries", lists.reversed(), True)]
    return [(view, is_text) for name, view, is_text in views if networks in ("both", name)]


@torch.inference_mode()
def refined_scores(
    model: LeaprrModel, lists: SimilarityLists, *, is_text_query: bool
) -> tuple[Indices, Scores]:
    """Returns int64 [Q, K] items, in the base order, and their float64 scores."""
    network = model.text_queries if is_text_query else model.image_queries
    # Shorter lists than the network's give graphs of as many items as they have.
    count = min(neighbour_count(model.config, is_text_query), lists.items_of_query.shape[1])
    items, scores = [np.zeros((0, count), np.int64)], [np.zeros((0, count))]
    for start in range(0, len(lists.cross), _BATCH_SIZE):
        queries_B = np.arange(start, min(start + _BATCH_SIZE, len(lists.cross)))
        graphs = query_graphs(
            lists, queries_B, count, model.config, threshold_nodes(model.config, is_text_query)
        )
        scores_BV, _ = network(
            torch.from_numpy(graphs.features),
            torch.from_numpy(graphs.affinity),
            torch.from_numpy(graphs.valid),
        )
        items.append(graphs.items)
        scores.append(scores_BV[:, 1:].double().numpy())
    return np.concatenate(items), np.concatenate(scores)


def neighbour_count(config: LeaprrConfig, is_text_query: bool) -> int:
    """Returns the items of a graph in this direction."""
    return config.text_query_neighbours if is_text_query else config.image_query_neighbours


def threshold_nodes(config: LeaprrConfig, is_text_query: bool) -> int | None:
    """Returns the fixed n of this direction's affinity threshold, or None for the graph's own."""
    return config.fixed_threshold_nodes and config.fixed_threshold_nodes[is_text_query]


def _with_scores(
    view: SimilarityLists, items_QK: Indices, scores_QK: Scores, is_text_query: bool
) -> Scores:
    """Returns float64 [I, T]: the similarities of one direction's searches, with these scores."""
    refined_QN = view.found()
    np.put_along_axis(refined_QN, items_QK, scores_QK, axis=1)
    return refined_QN.T if is_text_query else refined_QN


def _reordered_pool(order_QN: Order, items_QK: Indices, scores_QK: Scores) -> Order:
    """Returns int64 [Q, N]: each query's listed items by score, then the rest in the base order.

    The list says which items those are: it comes from single precision, so that nearly equal items
    may be in another order there than in the matrix.
    """
    is_listed_QN = np.zeros(order_QN.shape, np.bool_)
    np.put_along_axis(is_listed_QN, items_QK, True, axis=1)
    rest_QN = order_QN[~np.take_along_axis(is_listed_QN, order_QN, axis=1)]
    listed_first_QN = np.concatenate([items_QK, rest_QN.reshape(len(order_QN), -1)], axis=1)
    return rerank_order(listed_first_QN, scores_QK)
