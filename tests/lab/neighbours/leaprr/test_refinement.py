"""Refined orders: which items each direction reorders, also where lists and matrix disagree."""

from dataclasses import replace

import numpy as np
import pytest

from tandem.lab.evaluation.ranking import retrieve_order
from tandem.lab.neighbours.leaprr.config import Profile, leaprr_config
from tandem.lab.neighbours.leaprr.refinement import (
    LeaprrModel,
    refine,
    refine_as_served,
    refined_scores,
)
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


@pytest.mark.parametrize("profile", ["paper", "code"])
def test_lists_shorter_than_the_graph_reorder_what_they_have(profile: Profile) -> None:
    """A network of 12 items over lists of 6 scores 6, as one of 6 items does, and no other item."""
    lists = planted_neighbours(seed=1, image_count=24, depth=6).similarity_lists()
    config = replace(
        leaprr_config(profile),
        pillar_count=4,
        affinity_neighbours=4,
        width=8,
        head_count=2,
        fixed_threshold_nodes=None,
        image_query_neighbours=12,
        text_query_neighbours=12,
    )
    fitting = replace(config, image_query_neighbours=6, text_query_neighbours=6)
    model = LeaprrModel.untrained(config, seed=1)
    of_six = LeaprrModel(fitting, model.image_queries, model.text_queries)

    for view, is_text_query in [(lists, False), (lists.reversed(), True)]:
        items, scores = refined_scores(model, view, is_text_query=is_text_query)
        np.testing.assert_array_equal(items, view.items_of_query)
        assert scores.shape == items.shape
    for one, other in [
        (refine(model, lists), refine(of_six, lists)),
        (refine_as_served(model, lists), refine_as_served(of_six, lists)),
    ]:
        np.testing.assert_array_equal(one.texts_of_image, other.texts_of_image)
        np.testing.assert_array_equal(one.images_of_text, other.images_of_text)


def test_a_search_reorders_its_own_items_alone() -> None:
    """As it is served: by hand from the scores; the whole matrix's average is another order."""
    lists = planted_neighbours(seed=2, image_count=24).similarity_lists()
    config = replace(CONFIG, averages_whole_matrix=True)
    model = LeaprrModel.untrained(config, seed=3)

    served = refine_as_served(model, lists)

    base = retrieve_order(np.asarray(lists.cross.T, np.float64)).tolist()
    items, scores = refined_scores(model, lists.reversed(), is_text_query=True)
    for query, order in enumerate(served.images_of_text.tolist()):
        first = [items[query][place] for place in np.argsort(-scores[query], kind="stable")]
        assert order == [*first, *(item for item in base[query] if item not in first)]
    assert (served.images_of_text != refine(model, lists).images_of_text).any()
    whole = refine(LeaprrModel(CONFIG, model.image_queries, model.text_queries), lists)
    np.testing.assert_array_equal(served.texts_of_image, whole.texts_of_image)
