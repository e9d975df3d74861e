"""Augments the searched items by their own neighbours: ADBA, ADBAwD and alpha-DBA.

The weights are those of query expansion. LeaPRR (Qu et al. 2023, section 4.2 and Table 1) combines
both sides in two ways: in sequence, items first and then queries from the augmented items; and
jointly, where queries and items are expanded together as one set. Shapes: Q queries, N items,
K neighbours, D width.
"""

import numpy as np

from tandem.neighbours.neighbour_lists import Scores, nearest_others
from tandem.neighbours.neighbour_weights import WeightsOf
from tandem.neighbours.query_expansion import averaged, expand_queries


def augment_items(items_ND: Scores, k: int, weights_of: WeightsOf) -> Scores:
    """Returns float64 [N, D]: each item averaged with its `k` nearest others, of unit length.

    The published code sets an item's similarity to itself to 0 instead of excluding it. There, an
    item whose others all have negative similarities is its own neighbour.
    """
    similarity_NN = items_ND @ items_ND.T
    nearest_NK = nearest_others(similarity_NN, k)
    weights_NK = weights_of(np.take_along_axis(similarity_NN, nearest_NK, axis=1))
    return averaged(items_ND, items_ND[nearest_NK], weights_NK)


def expand_in_sequence(
    queries_QD: Scores, items_ND: Scores, k: int, weights_of: WeightsOf
) -> tuple[Scores, Scores]:
    """Returns queries and items: the items augmented, then the queries expanded by these items."""
    augmented_ND = augment_items(items_ND, k, weights_of)
    return expand_queries(queries_QD, augmented_ND, k, weights_of), augmented_ND


def expand_jointly(
    queries_QD: Scores, items_ND: Scores, k: int, weights_of: WeightsOf
) -> tuple[Scores, Scores]:
    """Returns queries and items, each expanded by its nearest others among both.

    So a query's score depends on which other queries are expanded with it.
    """
    both = augment_items(np.concatenate([queries_QD, items_ND]), k, weights_of)
    return both[: len(queries_QD)], both[len(queries_QD) :]
