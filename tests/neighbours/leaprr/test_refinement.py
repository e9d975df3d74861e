"""Refined orders: which items each direction reorders, also where lists and matrix disagree."""

from dataclasses import replace

import numpy as np

from tandem.evaluation.ranking import retrieve_order
from tandem.neighbours.leaprr.config import leaprr_config
from tandem.neighbours.leaprr.refinement import LeaprrModel, refine, refined_scores
from tests.support.neighbours.planted_corpus import planted_neighbours

CONFIG = replace(
    leaprr_config("paper"), pillar_count=4, image_query_neighbours=5, text_query_neighbours=3
)


def test_the_listed_items_rank_first_by_score_and_the_rest_in_base_order() -> None:
    """Two items that are nearly equal in single precision change places in a list."""
    lists = planted_neighbours(seed=1, image_count=24).similarity_lists()
    model = LeaprrModel.untrained(CONFIG, seed=1)
    swapped = lists.items_of_query.copy()
    swapped[0, [4, 5]] = swapped[0, [5, 4]]  # the last of the graph and the first after it
    rounded = replace(lists, items_of_query=swapped)

    order = refine(model, rounded).texts_of_image[0].tolist()

    items, scores = refined_scores(model, rounded, is_text_query=False)
    base = retrieve_order(np.asarray(lists.cross, np.float64))[0].tolist()
    assert order[:5] == items[0][np.argsort(-scores[0], kind="stable")].tolist()
    assert order[5:] == [item for item in base if item not in order[:5]]
    assert sorted(order) == sorted(base)
    # Positive control: the list of the matrix itself has the other item in its graph.
    assert set(refine(model, lists).texts_of_image[0][:5].tolist()) != set(order[:5])
