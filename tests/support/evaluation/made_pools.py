"""Pools whose chances are known, for fits to find again.

Shapes: Q queries, K candidates.
"""

import numpy as np

from tandem.lab.evaluation.calibration.held_out_pools import HeldOutPools


def made_pools(
    query_count: int = 4_000, pool_size: int = 20, seed: int = 0, scale: float = 0.5
) -> HeldOutPools:
    """Returns pools in which a logit's chance of an answer is sigmoid(scale * logit - 1).

    Early candidates have higher similarities and, in most queries, the highest logits.
    """
    rng = np.random.default_rng(seed)
    similarity = -np.sort(-rng.uniform(0, 1, (query_count, pool_size)), axis=1)
    logits = rng.normal(-6.0, 1.5, (query_count, pool_size))
    best = np.minimum(rng.geometric(0.25, query_count) - 1, pool_size - 1)
    logits[np.arange(query_count), best] = rng.normal(4.0, 2.0, query_count)
    chance = 1 / (1 + np.exp(-(scale * logits - 1.0)))
    is_match = rng.uniform(size=logits.shape) < chance
    return HeldOutPools(
        similarity.astype(np.float32), logits.astype(np.float32), is_match, is_match
    )
