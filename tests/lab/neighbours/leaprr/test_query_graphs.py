"""Graphs of a corpus of two images with two texts each, by hand."""

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from tandem.lab.neighbours.leaprr.config import leaprr_config
from tandem.lab.neighbours.leaprr.query_graphs import mapped_graphs, query_graphs
from tests.support.neighbours.similarity_views import similarity_view

CROSS = np.array([[0.9, 0.8, 0.1, 0.2], [0.3, 0.2, 0.7, 0.6]])
IMAGES = np.array([[1.0, 0.5], [0.5, 1.0]])
TEXTS = np.array([[1, 0.6, 0.3, 0.2], [0.6, 1, 0.4, 0.1], [0.3, 0.4, 1, 0.5], [0.2, 0.1, 0.5, 1]])
LISTS = similarity_view(CROSS, IMAGES, TEXTS, [0, 0, 1, 1])
CONFIG = replace(leaprr_config("paper"), pillar_count=2, affinity_neighbours=1)


def test_an_image_with_its_texts_by_hand() -> None:
    """Pillars of image 0 are texts 0 and 1, then images 0 and 1, which are its nearest."""
    graphs = query_graphs(LISTS, np.array([0]), 2, CONFIG)

    assert_array_equal(graphs.items, [[0, 1]])
    assert_allclose(
        graphs.features[0], [[0.9, 0.8, 1, 0.5], [1, 0.6, 0.9, 0.3], [0.6, 1, 0.8, 0.2]]
    )
    assert_array_equal(graphs.targets, [[False, True, True]])


def test_a_text_with_its_images_by_hand() -> None:
    """Pillars of text 2 are images 1 and 0, then texts 2 and 3."""
    graphs = query_graphs(LISTS.reversed(), np.array([2]), 2, CONFIG)

    assert_array_equal(graphs.items, [[1, 0]])
    assert_allclose(
        graphs.features[0], [[0.7, 0.1, 1, 0.5], [1, 0.5, 0.7, 0.6], [0.5, 1, 0.1, 0.2]]
    )
    assert_array_equal(graphs.targets, [[False, True, False]])


def test_affinity_of_an_image_by_hand() -> None:
    """Nearest image and text: image 0 has 0 and 0, text 0 has 0 and 0, text 1 has 0 and 1.

    So 2, 2, 1 are shared, and 1, 1, 2 by text 1. A threshold of .8 / 3 drops 1/5 and 1/4.
    """
    graphs = query_graphs(LISTS, np.array([0]), 2, CONFIG)

    assert_allclose(graphs.affinity[0], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])


def test_a_rerank_reorders_the_own_pool_of_a_query_by_hand() -> None:
    """Image 0's pool is texts 0, 1 and 3, which the cross-encoder orders 3, 1, 0.

    So these have .9, .8 and .2, and image 1 is now the nearest of text 0, and image 0 of text 3.
    Image 1's own pool is not known: its similarities stay. Nearest image and text are 0, 3 of image
    0 and of text 3, then 0, 1 and 1, 0. A threshold of .8 / 4 drops 1/5.
    """
    lists = replace(
        LISTS,
        query_pools=np.array([[3, 1, 0], [0, 3, 2]]),
        item_pools=np.array([[1, 0], [0, 1], [1, 0], [1, 0]]),
    )

    graphs = query_graphs(lists, np.array([0]), 3, CONFIG)

    assert_array_equal(graphs.items, [[3, 1, 0]])
    assert_allclose(
        graphs.features[0],
        [[0.9, 0.8, 1, 0.5], [1, 0.1, 0.9, 0.6], [0.1, 1, 0.8, 0.2], [0.2, 0.6, 0.2, 0.3]],
    )
    assert_allclose(
        graphs.affinity[0],
        [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0.0, 0, 0, 1]],
    )
    assert_allclose(lists.found()[0], [0.2, 0.8, 0.1, 0.9])
    by_text = query_graphs(lists.reversed(), np.array([0]), 2, CONFIG)
    assert_array_equal(by_text.items, [[1, 0]])
    assert_allclose(by_text.features[0, 0], [0.9, 0.3, 1, 0.6])


def test_a_query_is_its_own_pillar_unless_left_out() -> None:
    """Image 1's nearest images are 1 and 0, text 1's nearest texts 1, 0."""
    without = replace(CONFIG, pillar_count=1, includes_query_pillar=False)

    by_image = query_graphs(LISTS, np.array([1]), 1, without).features[0, 0]
    by_text = query_graphs(LISTS.reversed(), np.array([1]), 1, without).features[0, 0]

    assert_allclose(by_image, [0.7, 0.5])
    assert_allclose(by_text, [0.8, 0.6])
    with_itself = query_graphs(
        LISTS, np.array([1]), 1, replace(without, includes_query_pillar=True)
    )
    assert_allclose(with_itself.features[0, 0], [0.7, 1])


def test_more_nodes_than_images_are_not_valid() -> None:
    graphs = query_graphs(LISTS.reversed(), np.array([2, 0]), 3, CONFIG)

    assert_array_equal(graphs.items, [[1, 0, -1], [0, 1, -1]])
    assert_array_equal(graphs.valid, [[True, True, True, False]] * 2)
    assert not graphs.features[:, 3].any()
    assert not graphs.targets[:, 3].any()
    shorter = query_graphs(LISTS.reversed(), np.array([2, 0]), 2, CONFIG)
    assert_allclose(graphs.affinity[:, :3, :3], shorter.affinity)


def test_texts_are_mapped_to_their_images() -> None:
    """Duplicates among them; similarities are those of the new query, affinity the old."""
    graphs = query_graphs(LISTS, np.array([0]), 2, CONFIG)

    mapped = mapped_graphs(
        graphs, LISTS.reversed(), np.array([1]), CONFIG, np.random.default_rng(0)
    )

    assert_array_equal(mapped.items, [[0, 0]])
    # Text 1: images 0 and 1, then texts 1 and 0.
    assert_allclose(mapped.features[0], [[0.8, 0.2, 1, 0.6], *[[1, 0.5, 0.8, 0.9]] * 2])
    assert_array_equal(mapped.affinity, graphs.affinity)
    assert_array_equal(mapped.targets, graphs.targets)


def test_images_are_mapped_to_any_of_their_texts() -> None:
    graphs = query_graphs(LISTS.reversed(), np.array([2]), 2, CONFIG)
    rng = np.random.default_rng(0)

    drawn = {
        tuple(mapped_graphs(graphs, LISTS, np.array([1]), CONFIG, rng).items[0].tolist())
        for _ in range(50)
    }

    assert drawn == {(2, 0), (2, 1), (3, 0), (3, 1)}


def test_a_missing_item_stays_missing() -> None:
    graphs = query_graphs(LISTS.reversed(), np.array([2]), 3, CONFIG)

    mapped = mapped_graphs(graphs, LISTS, np.array([1]), CONFIG, np.random.default_rng(0))

    assert mapped.items[0, 2] == -1
    assert not mapped.features[0, 3].any()


def test_the_lists_of_the_other_view_are_its_own() -> None:
    other = similarity_view(CROSS.T, TEXTS, IMAGES, [0, 0])  # texts as the images
    view = LISTS.reversed()

    assert_array_equal(view.items_of_query, other.items_of_query)
    assert_array_equal(view.queries_of_query, other.queries_of_query)
    assert_array_equal(view.items_of_item, other.items_of_item)
    assert_array_equal(view.queries_of_item, other.queries_of_item)
    assert_array_equal(view.reversed().items_of_query, LISTS.items_of_query)


def test_pillars_from_the_top_the_bottom_or_at_random() -> None:
    """Of image 0's texts 0, 1, 3, 2 and its images 0, 1; a query's random ones never change."""
    one = replace(CONFIG, pillar_count=1)

    features = {
        rank: query_graphs(LISTS, np.array([0]), 1, replace(one, pillar_rank=rank)).features[0, 0]
        for rank in ("top", "bottom", "random")
    }

    assert_allclose(features["top"], [0.9, 1])
    assert_allclose(features["bottom"], [0.1, 0.5])
    for value, known in zip(features["random"], [CROSS[0], IMAGES[0]], strict=True):
        assert value in known.astype(np.float32)
    again = query_graphs(LISTS, np.array([1, 0]), 1, replace(one, pillar_rank="random"))
    assert_allclose(again.features[1, 0], features["random"])


def test_pillars_of_one_modality_leave_the_others_0() -> None:
    whole = query_graphs(LISTS, np.array([0]), 2, CONFIG).features[0]

    inter = query_graphs(LISTS, np.array([0]), 2, replace(CONFIG, pillar_modality="inter"))
    intra = query_graphs(LISTS, np.array([0]), 2, replace(CONFIG, pillar_modality="intra"))

    assert_allclose(inter.features[0], whole * [1, 1, 0, 0])
    assert_allclose(intra.features[0], whole * [0, 0, 1, 1])
