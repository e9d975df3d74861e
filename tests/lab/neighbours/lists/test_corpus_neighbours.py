"""A corpus's lists: by hand, in the order of ids, and each wrong input named."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tandem.lab.neighbours.lists.corpus_neighbours import (
    CorpusNeighbours,
    NeighbourSource,
    corpus_neighbours,
    with_pools,
)
from tandem.lab.neighbours.lists.neighbour_lists import Scores
from tests.support.neighbours.planted_corpus import planted_neighbours

SOURCE = NeighbourSource("f" * 64, "scenes", "test", 1, "0" * 64)


def _unit(degrees: list[float]) -> Scores:
    """Returns embeddings in the plane at these angles."""
    return np.array([[np.cos(np.radians(each)), np.sin(np.radians(each))] for each in degrees])


def _by_hand(depth: int = 2) -> CorpusNeighbours:
    """Images b, a at 0 and 90 degrees; texts z, y, x at 10, 60 and 85, of b, b and a."""
    images, texts = _unit([0, 90]), _unit([10, 60, 85])
    return corpus_neighbours(SOURCE, "ba", "zyx", images, texts, [0, 0, 1], depth)


def test_lists_by_hand() -> None:
    """Items are numbered by id: images a, b and texts x, y, z at 85, 60 and 10 degrees."""
    near = _by_hand()

    assert (near.image_ids, near.text_ids) == (["a", "b"], ["x", "y", "z"])
    assert_array_equal(near.image_of_text, [0, 1, 1])
    assert_array_equal(near.lists["texts_of_image"], [[0, 1], [2, 1]])
    assert_array_equal(near.lists["images_of_text"], [[0, 1], [0, 1], [1, 0]])
    assert_array_equal(near.lists["images_of_image"], [[0, 1], [1, 0]])
    assert_array_equal(near.lists["texts_of_text"], [[0, 1], [1, 0], [2, 1]])


def test_equal_similarities_keep_the_order_of_ids_and_not_of_records() -> None:
    images = _unit([0, 0])

    near = corpus_neighbours(SOURCE, "ba", "yx", images, images, [0, 1], 2)

    assert_array_equal(near.lists["texts_of_image"], [[0, 1], [0, 1]])
    assert near.text_ids == ["x", "y"]


def test_pairs_of_either_pool_share_their_cosines_by_their_logits() -> None:
    """By hand: the first of each list are a pair with x, a with y and b with z.

    Their cosines are those of 5, 30 and 10 degrees; the largest logit gets the largest of them. A
    pair in no pool keeps its own.
    """
    near = _by_hand()

    pooled = with_pools(near, {}, np.array([[-2.0], [9.0]]), np.array([[-2.0], [40.0], [9.0]]))

    own = near.cross_similarity()
    expected = own.copy()
    expected[0, 1], expected[1, 2], expected[0, 0] = np.cos(np.radians([5, 10, 30]))
    assert_allclose(own[0, :2], np.cos(np.radians([5, 30])), rtol=1e-6)  # the control
    assert_allclose(pooled.cross_similarity(), expected, rtol=1e-6)
    assert (near.base, pooled.base) == ("BE", "BE + CE 1")
    assert pooled.without_pools().base == "BE"


def test_equal_logits_keep_the_order_of_cosines() -> None:
    """As a rerank keeps the bi-encoder's order of them."""
    near = _by_hand()

    pooled = with_pools(near, {}, np.full((2, 2), 7.0), np.full((3, 2), 7.0))

    assert_array_equal(pooled.cross_similarity(), near.cross_similarity())


def test_the_zero_and_unit_of_logits_do_not_matter() -> None:
    """A cross-encoder that learned which pair is better knows neither: sigmoids of them said 1."""
    near = planted_neighbours(seed=1, image_count=12, depth=8)
    rng = np.random.default_rng(1)
    logits_IT = rng.normal(size=(12, 24))
    image_logits, text_logits = (
        np.take_along_axis(logits, near.lists[name][:, :5], axis=1)
        for logits, name in [(logits_IT, "texts_of_image"), (logits_IT.T, "images_of_text")]
    )

    one = with_pools(near, {}, image_logits, text_logits).cross_similarity()
    other = with_pools(near, {}, 3 * image_logits - 9, 3 * text_logits - 9)

    assert_array_equal(other.cross_similarity(), one)
    assert (one != near.cross_similarity()).any()
    assert np.abs(one).max() < 1 + 1e-6  # the scale of cosines, as the networks' scores have


def test_the_cross_encoder_reorders_each_pool_and_no_list() -> None:
    """Image a's first text gets a probability near 0 and its second one near 1."""
    near = _by_hand()
    image_logits, text_logits = np.array([[-9.0, 9.0], [9.0, 9.0]]), np.full((3, 2), -9.0)
    text_logits[0, 0], text_logits[1, 0], text_logits[1, 1] = -9, 9, 9

    view = with_pools(near, {}, image_logits, text_logits).similarity_lists()

    assert_array_equal(view.found_items(np.array([0])), [[1, 0]])
    assert_array_equal(near.similarity_lists().found_items(np.array([0])), [[0, 1]])
    assert_allclose(view.found()[0, :2], np.cos(np.radians([30, 5])), rtol=1e-6)
    assert_array_equal(view.cross, near.similarity_lists().cross)
    assert_array_equal(view.items_of_query, near.lists["texts_of_image"])
    assert_array_equal(view.queries_of_query, near.lists["images_of_image"])


def test_a_corpus_too_small_for_k_is_named() -> None:
    with pytest.raises(ValueError, match=r"lists of 3 neighbours need as many images.*has 2"):
        _by_hand(depth=3)


def test_what_a_model_or_corpus_gets_wrong_is_named() -> None:
    images, texts = _unit([0, 90]), _unit([10, 60, 85])

    with pytest.raises(ValueError, match="image b has no text: leave out records"):
        corpus_neighbours(SOURCE, "ab", "zyx", images, texts, [0, 0, 0], 2)
    with pytest.raises(ValueError, match="an embedding of the model is NaN"):
        corpus_neighbours(SOURCE, "ab", "zyx", images * np.nan, texts, [0, 0, 1], 2)
