"""Platt scaling: it finds the chances that made the answers, and knows how far off others are."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tandem.evaluation.probability_fit import (
    ProbabilityQuality,
    expected_calibration_error,
    fit_probability,
)
from tandem.model_description import ProbabilityCalibration
from tests.evaluation.made_pools import made_pools


def test_the_chances_that_made_the_answers_are_found() -> None:
    """And are true of pools that were not fitted on, where the bare sigmoid's are not."""
    found = fit_probability(made_pools(seed=1))

    assert_allclose((found.scale, found.bias), (0.5, -1.0), atol=0.05)
    test = made_pools(seed=2)
    calibrated, bare = (
        ProbabilityQuality.of(each, test) for each in (found, ProbabilityCalibration())
    )
    assert calibrated.pool_error < 0.01
    assert calibrated.first_error < 0.03
    assert bare.pool_error > 2 * calibrated.pool_error
    assert bare.first_error > 2 * calibrated.first_error
    assert bare.brier > calibrated.brier


def test_logits_that_mean_the_opposite_are_refused() -> None:
    """A scale below 0 would turn the order round."""
    pools = made_pools(query_count=200)

    with pytest.raises(ValueError, match="do not mean more matches"):
        fit_probability(replace(pools, match_logits=-pools.match_logits))


def test_errors_weigh_as_much_as_their_bin_holds() -> None:
    """One pair of ten that is wholly wrong is an error of a tenth; of right ones none."""
    said = np.array([0.0] * 9 + [1.0])

    assert expected_calibration_error(said, np.zeros(10, bool)) == pytest.approx(0.1)
    assert expected_calibration_error(said, said == 1.0) == 0.0


def test_errors_of_one_bin_cancel_and_of_two_do_not() -> None:
    """Half of what is said at 0.5 should be so, whichever half."""
    so = np.array([True, False])

    assert expected_calibration_error(np.array([0.5, 0.5]), so) == 0.0
    assert expected_calibration_error(np.array([0.3, 0.7]), so) == pytest.approx(0.7)
