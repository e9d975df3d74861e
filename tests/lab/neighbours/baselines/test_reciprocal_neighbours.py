"""Reverse ranks by hand, and what the authors' program reads from the answers."""

import numpy as np
from numpy.testing import assert_array_equal

from tandem.lab.neighbours.baselines.reciprocal_neighbours import (
    rerank_by_similar_queries,
    rerank_reciprocally,
)

# Texts 0 and 1 are captions of image 0, texts 2 and 3 of image 1. The images' lists are
# 1 0 3 2 and 2 0 3 1.
SIMILARITY = np.array([[0.5, 0.6], [0.9, 0.1], [0.2, 0.8], [0.3, 0.4]])


def test_images_to_texts_by_hand() -> None:
    """Text 0's list is images 1, 0 and text 1's is 0, 1: image 0 is first for text 1 alone.

    Image 1 is first in the lists of texts 0 and 2, so these keep the base order.
    """
    similarity = np.array([[0.9, 0.8, 0.1], [0.95, 0.2, 0.3]])

    assert_array_equal(rerank_reciprocally(similarity, 2), [[1, 0, 2], [0, 2, 1]])
    assert_array_equal(rerank_reciprocally(similarity, 1), [[0, 1, 2], [0, 2, 1]])


def test_texts_to_images_by_hand() -> None:
    """Text 0 is second in both images' lists, so the base order stays, which is wrong."""
    assert_array_equal(rerank_reciprocally(SIMILARITY, 2)[0], [1, 0])


def test_the_released_program_reads_the_answer() -> None:
    """It takes the best rank of texts 0 and 1, since 0 div 2 = 1 div 2, and so finds image 0."""
    ranks = np.argsort(np.argsort(-SIMILARITY, axis=0), axis=0)
    leaked = np.argsort(ranks[[0, 1]].min(axis=0))

    assert_array_equal(leaked, [0, 1])
    assert (rerank_reciprocally(SIMILARITY, 2)[0] != leaked).any()


def test_similar_texts_stand_for_the_captions_of_one_image() -> None:
    """With text 1 nearest, text 0 finds image 0; with text 2 nearest, image 1."""
    towards_1, towards_2 = np.eye(4), np.eye(4)
    towards_1[0, 1] = towards_2[0, 2] = 0.9

    assert_array_equal(rerank_by_similar_queries(SIMILARITY, 2, towards_1, 1)[0], [0, 1])
    assert_array_equal(rerank_by_similar_queries(SIMILARITY, 2, towards_2, 1)[0], [1, 0])
