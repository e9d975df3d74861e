"""Orders and ranks, worked by hand and against plain sorting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tandem.contract.content import Modality
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.gallery import make_gallery
from tandem.lab.evaluation.metrics import recall_at
from tandem.lab.evaluation.ranking import (
    all_answer_ranks,
    first_answer_ranks,
    rerank_order,
    retrieve_order,
    tied_count,
)

# Few values, so that ties come up.
SCORES = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0])
TABLES = st.tuples(st.integers(1, 4), st.integers(1, 12)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float64, shape, elements=SCORES), arrays(np.float64, shape, elements=SCORES)
    )
)


def test_ties_keep_a_given_order() -> None:
    """Items 1 and 3 are equal: 3 comes first where it does so in that order."""
    similarity = np.array([[0.1, 0.7, 0.9, 0.7]])

    assert retrieve_order(similarity, [3, 0, 1, 2]).tolist() == [[2, 3, 1, 0]]
    assert retrieve_order(similarity, [0, 1, 2, 3]).tolist() == [[2, 1, 3, 0]]


def test_equal_scores_for_everything_find_nothing_but_by_chance() -> None:
    """A model that says the same of all items is not a model; by the numbers of the items it would
    find what asks, which comes before all distractors.
    """
    gallery = make_gallery(
        scene_records("test", 1, 4), ["en"], distractors=scene_records("val", 1, 400)
    )
    for target in Modality:
        answers = gallery.answers(target)
        same = np.zeros((len(answers), 404))

        ranks = first_answer_ranks(retrieve_order(same, gallery.tie_order(target)), answers)

        assert min(ranks) > 4
        assert first_answer_ranks(retrieve_order(same), answers) == [1, 2, 3, 4]
        assert tied_count(same, answers) == 4


def test_ties_are_with_wrong_items_only() -> None:
    """Two captions of a picture that are equal are not a tie; nor is one with a worse answer."""
    similarity = np.array([[0.5, 0.5, 0.1], [0.9, 0.5, 0.5], [0.5, 0.5, 0.5]])

    assert tied_count(similarity, [{0, 1}, {0, 1}, {0, 1}]) == 1


def test_the_pool_is_reordered_and_the_rest_follows() -> None:
    """Of 3, 0, 2 | 1 the scores 1, 5, 5 make 0, 2, 3; the one outside the pool stays last.

    The paper's code drops it, so that an answer there has no rank.
    """
    retrieved = np.array([[3, 0, 2, 1]])

    order = rerank_order(retrieved, np.array([[1.0, 5.0, 5.0]]))

    assert order.tolist() == [[0, 2, 3, 1]]
    assert first_answer_ranks(order, [{1}]) == [4]


@given(TABLES, st.integers(1, 12))
def test_reranking_never_changes_the_members_of_the_pool(
    tables: tuple[np.ndarray, np.ndarray], k: int
) -> None:
    similarity, logits = tables
    retrieved = retrieve_order(similarity)
    pool = retrieved[:, :k]

    order = rerank_order(retrieved, np.take_along_axis(logits, pool, axis=1))

    assert (np.sort(order, axis=1) == np.arange(similarity.shape[1])).all()
    assert (np.sort(order[:, :k], axis=1) == np.sort(pool, axis=1)).all()
    assert (order[:, k:] == retrieved[:, k:]).all()
    answers = [{0}] * len(similarity)
    of_be, of_coop = (
        recall_at(first_answer_ranks(each, answers), k) for each in (retrieved, order)
    )
    assert of_be == of_coop


@given(TABLES)
def test_a_pool_of_everything_is_the_cross_encoder_on_all_pairs(
    tables: tuple[np.ndarray, np.ndarray],
) -> None:
    """Ties go to the better similarity, then to the first: as plain sorting by all three does."""
    similarity, logits = tables
    retrieved = retrieve_order(similarity)

    order = rerank_order(retrieved, np.take_along_axis(logits, retrieved, axis=1))

    for query, row in enumerate(order):
        key = [(-logits[query, n], -similarity[query, n], n) for n in range(len(row))]
        assert row.tolist() == sorted(range(len(row)), key=key.__getitem__)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        retrieve_order(np.array([[0.0, np.nan]]))
    with pytest.raises(ValueError, match="NaN"):
        rerank_order(np.array([[0, 1]]), np.array([[np.nan, 0.0]]))
    with pytest.raises(ValueError, match="3 scores a query for 2 items"):
        rerank_order(np.array([[0, 1]]), np.zeros((1, 3)))


def test_every_answer_has_a_rank() -> None:
    """Ascending, whatever their numbers; one that is not among the items is refused."""
    assert all_answer_ranks(np.array([[4, 0, 2, 1]]), [{2, 0, 4}]) == [(1, 2, 3)]
    with pytest.raises(ValueError, match="query 0 has no answer"):
        all_answer_ranks(np.array([[4, 0, 2, 1]]), [{2, 7}])
