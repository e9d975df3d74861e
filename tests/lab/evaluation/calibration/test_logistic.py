"""Logistic regression: it finds the weights that made the examples."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tandem.lab.evaluation.calibration.logistic import fit_logistic, sigmoid_of


def test_the_weights_that_made_the_examples_are_found() -> None:
    rng = np.random.default_rng(0)
    features = np.stack([rng.normal(3, 1, 50_000), rng.normal(0, 100, 50_000)], axis=1)
    chance = sigmoid_of(features @ [1.5, -0.02] - 4.0)

    found = fit_logistic(features, rng.uniform(size=50_000) < chance)

    assert_allclose(found, [1.5, -0.02, -4.0], rtol=0.05)


def test_it_is_where_the_likelihood_is_greatest() -> None:
    """The gradient is nothing there: what is expected is what is seen, overall and by feature."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(500, 3))
    is_true = rng.uniform(size=500) < sigmoid_of(features @ [2.0, 0.0, -1.0])

    *weights, intercept = fit_logistic(features, is_true)

    expected = sigmoid_of(features @ weights + intercept)
    assert_allclose(expected.sum(), is_true.sum(), rtol=1e-4)
    assert_allclose(features.T @ expected, features.T @ is_true, rtol=1e-3)


def test_examples_that_a_line_parts_give_finite_weights() -> None:
    features = np.linspace(-1, 1, 40)[:, None]

    found = fit_logistic(features, features[:, 0] > 0)

    assert np.isfinite(found).all()
    assert found[0] > 10


def test_a_feature_that_never_changes_is_left_out() -> None:
    """It tells nothing, and divides by nothing."""
    rng = np.random.default_rng(2)
    features = np.stack([rng.normal(size=300), np.full(300, 7.0)], axis=1)

    found = fit_logistic(features, rng.uniform(size=300) < sigmoid_of(features[:, 0]))

    assert np.isfinite(found).all()
    assert abs(found[1]) < 1e-9


def test_identical_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="all alike"):
        fit_logistic(np.zeros((5, 1)), np.full(5, True))


def test_large_values_do_not_overflow() -> None:
    """numpy's warnings are errors here."""
    assert_allclose(sigmoid_of(np.array([-1e4, 0.0, 1e4])), [0.0, 0.5, 1.0])


def test_an_example_that_counts_thrice_is_three_examples() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(300, 2))
    is_true = rng.uniform(size=300) < sigmoid_of(features @ [1.0, -1.0])
    counts = np.where(np.arange(300) < 100, 3.0, 1.0)

    found = fit_logistic(features, is_true, counts_N=counts)

    said = np.repeat(np.arange(300), counts.astype(int))
    assert_allclose(found, fit_logistic(features[said], is_true[said]), atol=1e-4)
    assert not np.allclose(found, fit_logistic(features, is_true), atol=1e-2)
