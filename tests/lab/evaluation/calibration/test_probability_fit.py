"""Platt scaling: it finds the chances that made the answers, and knows how far off others are."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tandem.contract.model_description import ProbabilityCalibration
from tandem.lab.evaluation.calibration.held_out_pools import HeldOutPools
from tandem.lab.evaluation.calibration.logistic import fit_logistic
from tandem.lab.evaluation.calibration.probability_fit import (
    ProbabilityQuality,
    expected_calibration_error,
    fit_probability,
)
from tests.support.evaluation.made_pools import made_pools


def test_the_chances_that_made_the_answers_are_found() -> None:
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


def test_first_hits_are_reported_as_well_as_all_pairs() -> None:
    """Of pools with one match each, as searches have them, whose other candidates are near.

    That a candidate is its pool's best is more than its logit says. Fitted on all pairs alone, as
    here for comparison, the first hit is right more often than is said.
    """
    dev, test = pools_of_one_match(seed=1), pools_of_one_match(seed=2)
    logits_N = dev.match_logits.ravel()
    scale, bias = fit_logistic(logits_N[:, None], dev.is_match.ravel())

    found = ProbabilityQuality.of(fit_probability(dev), test)

    of_all_alone = ProbabilityQuality.of(ProbabilityCalibration(scale, bias), test)
    assert of_all_alone.first_error > 0.04
    assert found.first_error < 0.03
    assert found.pool_error < 0.03


def pools_of_one_match(seed: int, query_count: int = 4_000, pool_size: int = 20) -> HeldOutPools:
    """Returns pools whose first candidate alone is a match; some others come near it."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-12.0, 4.0, (query_count, pool_size))
    logits[:, 0] = rng.normal(6.0, 4.0, query_count)
    is_match = np.zeros(logits.shape, bool)
    is_match[:, 0] = True
    return HeldOutPools(np.zeros(logits.shape), logits, is_match, is_match)


def test_logits_that_mean_the_opposite_are_refused() -> None:
    """A scale below 0 would turn the order round."""
    pools = made_pools(query_count=200)

    with pytest.raises(ValueError, match="do not mean more matches"):
        fit_probability(replace(pools, match_logits=-pools.match_logits))


def test_errors_are_weighted_by_the_size_of_their_bin() -> None:
    """One pair of ten that is wholly wrong is an error of a tenth; of right ones none."""
    said = np.array([0.0] * 9 + [1.0])

    assert expected_calibration_error(said, np.zeros(10, bool)) == pytest.approx(0.1)
    assert expected_calibration_error(said, said == 1.0) == 0.0
