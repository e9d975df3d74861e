"""Fits logistic regressions by Newton's method, for a handful of features.

Shapes: N examples, F features.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

_STEP_COUNT = 100
_TOLERANCE = 1e-9
_RIDGE = 1e-6  # In units of one example.


def fit_logistic(
    features_NF: Floats,
    is_true_N: NDArray[np.bool_],
    counts_N: Floats | None = None,
) -> NDArray[np.float64]:
    """Returns float64 [F + 1], the maximum likelihood weights and, last, the intercept.

    `counts_N` weighs the examples. A ridge regularises the weights, but not the intercept. Raises
    ValueError if examples are all alike, because no weights are the best then.
    """
    if is_true_N.all() or not is_true_N.any():
        raise ValueError(f"{len(is_true_N):,} examples are all alike; there is nothing to tell")
    targets_N = is_true_N.astype(np.float64)
    counts_N = np.ones(len(targets_N)) if counts_N is None else counts_N
    # Standardised, so that the ridge weighs equally on all features.
    centre_F = features_NF.mean(axis=0, dtype=np.float64)
    scale_F = features_NF.std(axis=0, dtype=np.float64)
    scale_F[scale_F == 0] = 1.0
    inputs_NG = np.concatenate(
        [(features_NF - centre_F) / scale_F, np.ones((len(features_NF), 1))], axis=1
    )
    penalty_GG = np.diag([_RIDGE] * len(scale_F) + [0.0])
    weights_G = np.zeros(inputs_NG.shape[1])
    loss = _loss(inputs_NG, targets_N, counts_N, penalty_GG, weights_G)
    for _ in range(_STEP_COUNT):
        chance_N = sigmoid_of(inputs_NG @ weights_G)
        gradient_G = inputs_NG.T @ (counts_N * (chance_N - targets_N)) + penalty_GG @ weights_G
        spread_N = counts_N * chance_N * (1 - chance_N)
        hessian_GG = (inputs_NG * spread_N[:, None]).T @ inputs_NG + penalty_GG
        step_G = np.linalg.lstsq(hessian_GG, gradient_G, rcond=None)[0]
        # Halved until the loss falls: far from the optimum a full step may overshoot.
        for _ in range(30):
            stepped = _loss(inputs_NG, targets_N, counts_N, penalty_GG, weights_G - step_G)
            if stepped <= loss:
                break
            step_G /= 2
        weights_G, gain, loss = weights_G - step_G, loss - stepped, stepped
        if gain < _TOLERANCE * max(1.0, loss):
            break
    own_F = weights_G[:-1] / scale_F
    return np.append(own_F, weights_G[-1] - own_F @ centre_F)


def sigmoid_of(values: Floats) -> NDArray[np.float64]:
    """Returns 1 / (1 + exp(-value)) of each, without overflow."""
    chances: NDArray[np.float64] = np.exp(-np.logaddexp(0.0, -values.astype(np.float64)))
    return chances


def _loss(
    inputs_NG: Floats, targets_N: Floats, counts_N: Floats, penalty_GG: Floats, weights_G: Floats
) -> float:
    values_N = inputs_NG @ weights_G
    likelihood = counts_N @ (np.logaddexp(0.0, values_N) - targets_N * values_N)
    return float(likelihood + weights_G @ penalty_GG @ weights_G / 2)
