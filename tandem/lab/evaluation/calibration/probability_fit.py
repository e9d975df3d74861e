"""Calibrates match probabilities (Platt scaling, 1999) and measures calibration error."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tandem.contract.model_description import ProbabilityCalibration
from tandem.lab.evaluation.calibration.held_out_pools import Floats, HeldOutPools
from tandem.lab.evaluation.calibration.logistic import fit_logistic, sigmoid_of
from tandem.lab.evaluation.reports.served_figures import BIN_COUNT

_RETURN_N = 10


# Weight of the first hits in the fit. Most pairs of a pool are clearly no match and would dominate
# by number; the first hit, which a search shows first, was then right more often than predicted.
_FIRST_SHARE = 0.5


def fit_probability(pools: HeldOutPools) -> ProbabilityCalibration:
    """Returns the maximum likelihood scaling of the pools' matches.

    Each pool's first hit weighs as much as all of its candidates together, because a probability
    answers both questions: is this pair a match, and is the first hit one.
    """
    logits_N = pools.match_logits.ravel()
    # In units of one example, so that the ridge keeps its meaning.
    counts_QK = np.full(pools.match_logits.shape, 1 - _FIRST_SHARE)
    first_Q = pools.match_logits.argmax(axis=1)
    counts_QK[np.arange(pools.query_count), first_Q] += _FIRST_SHARE * pools.pool_size
    return fit_scaling(logits_N, pools.is_match.ravel(), counts_QK.ravel())


def fit_scaling(
    logits_N: Floats, is_match_N: NDArray[np.bool_], counts_N: Floats | None = None
) -> ProbabilityCalibration:
    """Returns the maximum likelihood scaling of these pairs, weighted by `counts_N`."""
    scale, bias = fit_logistic(logits_N[:, None], is_match_N, counts_N=counts_N)
    if scale <= 0:
        raise ValueError(
            "higher match logits do not mean more matches here; train the model before calibrating"
        )
    return ProbabilityCalibration(float(scale), float(bias))


@dataclass(frozen=True, slots=True)
class ProbabilityQuality:
    """Holds calibration errors of probabilities; lower is better."""

    pool_error: float
    """Expected calibration error over all pairs of the pools, most of which are no match."""
    returned_error: float
    """The same over the first ten of each query's order, which a search returns."""
    first_error: float
    """The same over the first only."""
    brier: float
    """Mean squared error over all pairs."""

    @property
    def highest_error(self) -> float:
        """The highest of the three calibration errors."""
        return max(self.pool_error, self.returned_error, self.first_error)

    @classmethod
    def of(cls, calibration: ProbabilityCalibration, pools: HeldOutPools) -> Self:
        logits_QK, is_match_QK = pools.match_logits, pools.is_match
        probability_QK = sigmoid_of(calibration.scale * logits_QK + calibration.bias)
        order_QK = np.argsort(-logits_QK, axis=1, kind="stable")

        def error_of_first(count: int) -> float:
            first_QN = order_QK[:, :count]
            return expected_calibration_error(
                np.take_along_axis(probability_QK, first_QN, axis=1).ravel(),
                np.take_along_axis(is_match_QK, first_QN, axis=1).ravel(),
            )

        return cls(
            error_of_first(pools.pool_size),
            error_of_first(_RETURN_N),
            error_of_first(1),
            float(((probability_QK - is_match_QK) ** 2).mean()),
        )


def expected_calibration_error(probability_N: Floats, is_true_N: NDArray[np.bool_]) -> float:
    """Returns the mean gap between predicted and observed frequency over bins of equal width.

    Each bin is weighted by its size (Guo et al. 2017).

    >>> predicted, is_true = np.array([0.9, 0.9, 0.9, 0.9]), np.array([True, True, True, False])
    >>> round(expected_calibration_error(predicted, is_true), 3)
    0.15
    """
    bins_N = np.minimum((probability_N * BIN_COUNT).astype(np.int64), BIN_COUNT - 1)
    distance_B = np.bincount(bins_N, probability_N - is_true_N, BIN_COUNT)
    return float(np.abs(distance_B).sum() / len(probability_N))
