"""Fits and tests the rule by which a rerank may stop early.

At depth d, the cross-encoder has scored the first d candidates of a pool, in the bi-encoder's
order. The rule is evaluated at its first depth and after each further chunk, and stops where it
predicts that none of the remaining candidates would come first. It is fitted on fully reranked
pools.

Shapes: Q queries, K candidates of a pool, A evaluations of the rule, N examples, F features.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tandem.contract.model_description import AdaptiveDepthRule
from tandem.lab.evaluation.calibration.held_out_pools import Floats, HeldOutPools
from tandem.lab.evaluation.calibration.logistic import fit_logistic, sigmoid_of
from tandem.lab.evaluation.metrics import RECALL_AT, Recall, recall_at

_Z_95 = 1.959964


@dataclass(frozen=True, slots=True)
class DepthOutcome:
    """Holds what a rule saves compared with full reranks, and what it costs."""

    query_count: int
    pair_count: int
    whole_pair_count: int
    """Pairs of full reranks."""
    lost_count: int
    """Queries answered at rank 1 only by the full rerank."""
    gained_count: int
    """Queries answered at rank 1 only by the shortened rerank."""
    other_first_count: int
    """Queries whose first item differs from the full rerank's, right or wrong."""

    @property
    def saved_percent(self) -> float:
        return 100.0 * (1 - self.pair_count / self.whole_pair_count)

    @property
    def spoilt_points(self) -> float:
        """Points of R@1 lost, not counting gains."""
        return 100.0 * self.lost_count / self.query_count

    @property
    def lost_points(self) -> float:
        """Points of R@1 lost, minus those gained."""
        return 100.0 * (self.lost_count - self.gained_count) / self.query_count

    @property
    def lost_interval_points(self) -> tuple[float, float]:
        """The 95 % interval of `lost_points` (Bonett and Price 2012, for paired proportions)."""
        n = self.query_count + 2
        lost, gained = (self.lost_count + 1) / n, (self.gained_count + 1) / n
        half = _Z_95 * math.sqrt((lost + gained - (lost - gained) ** 2) / n)
        return 100.0 * (lost - gained - half), 100.0 * (lost - gained + half)


def fit_rule(
    pools: HeldOutPools, first_count: int, further_count: int, stop_chance: float
) -> AdaptiveDepthRule:
    """Returns the maximum likelihood rule at the depths where it will be evaluated."""
    depths = _asked_at(first_count, further_count, pools.pool_size)
    features_NF = np.concatenate([_features(pools, depth) for depth in depths])
    # Whether the full rerank's first item is not scored yet.
    is_ahead_N = np.concatenate([pools.match_logits.argmax(axis=1) >= depth for depth in depths])
    best, margin, gap, rank, intercept = map(float, fit_logistic(features_NF, is_ahead_N))
    return AdaptiveDepthRule(
        first_count=first_count,
        further_count=further_count,
        intercept=intercept,
        best_logit_weight=best,
        margin_weight=margin,
        similarity_gap_weight=gap,
        log_rank_weight=rank,
        stop_chance=stop_chance,
    )


def with_most_saved(
    rule: AdaptiveDepthRule, parts: Sequence[HeldOutPools], lost_points_limit: float
) -> AdaptiveDepthRule:
    """Returns the rule with the stop_chance that saves most pairs within the limit.

    In each direction at most that many points of R@1 are spoilt. Gains do not offset them, because
    they come from mistakes that another corpus need not have. Over both directions, the upper end
    of the interval of points lost is within the limit too.
    """
    chosen = replace(rule, stop_chance=0.0)
    chances = [_chances(rule, part) for part in parts]
    for stop_chance in np.geomspace(1e-5, 0.5, 300):
        tried = replace(rule, stop_chance=float(stop_chance))
        outcomes = [
            outcome(_depths(tried, chance_QA, part.pool_size), part)
            for chance_QA, part in zip(chances, parts, strict=True)
        ]
        worst = max(each.spoilt_points for each in outcomes)
        if max(worst, joined(outcomes).lost_interval_points[1]) <= lost_points_limit:
            chosen = tried
    return chosen


def depths_read(rule: AdaptiveDepthRule, pools: HeldOutPools) -> NDArray[np.int64]:
    """Returns int64 [Q], how many candidates of each query are scored before the rule stops."""
    return _depths(rule, _chances(rule, pools), pools.pool_size)


def outcome(depth_Q: NDArray[np.int64], pools: HeldOutPools) -> DepthOutcome:
    """Returns the outcome of scoring the first `depth_Q` candidates of each query."""
    whole_QK = _order(np.full(pools.query_count, pools.pool_size), pools)
    short_QK = _order(depth_Q, pools)
    is_whole_right_Q, is_short_right_Q = (
        np.take_along_axis(pools.is_answer, order_QK[:, :1], axis=1)[:, 0]
        for order_QK in (whole_QK, short_QK)
    )
    return DepthOutcome(
        pools.query_count,
        int(depth_Q.sum()),
        pools.match_logits.size,
        int((is_whole_right_Q & ~is_short_right_Q).sum()),
        int((is_short_right_Q & ~is_whole_right_Q).sum()),
        int((whole_QK[:, 0] != short_QK[:, 0]).sum()),
    )


def recalls(depth_Q: NDArray[np.int64], pools: HeldOutPools) -> list[Recall]:
    """Returns R@1, R@5 and R@10 with the first `depth_Q` candidates reranked, the rest below."""
    is_answer_QK = np.take_along_axis(pools.is_answer, _order(depth_Q, pools), axis=1)
    first_Q = is_answer_QK.argmax(axis=1) + 1
    is_found_Q = np.asarray(is_answer_QK.any(axis=1))
    ranks = [int(rank) if found else None for rank, found in zip(first_Q, is_found_Q, strict=True)]
    return [recall_at(ranks, k) for k in RECALL_AT]


def joined(outcomes: Iterable[DepthOutcome]) -> DepthOutcome:
    return DepthOutcome(*map(sum, zip(*map(astuple, outcomes), strict=True)))


def _order(depth_Q: NDArray[np.int64], pools: HeldOutPools) -> NDArray[np.int64]:
    """Returns int64 [Q, K]: scored candidates by logit, then the rest in the bi-encoder's order."""
    is_read_QK = np.arange(pools.pool_size) < depth_Q[:, None]
    return np.argsort(np.where(is_read_QK, -pools.match_logits, np.inf), axis=1, kind="stable")


def _asked_at(first_count: int, further_count: int, pool_size: int) -> range:
    return range(first_count, pool_size, further_count)


def _chances(rule: AdaptiveDepthRule, pools: HeldOutPools) -> Floats:
    """Returns float64 [Q, A], the rule's estimate at each evaluation."""
    weights_F = np.array(
        [
            rule.best_logit_weight,
            rule.margin_weight,
            rule.similarity_gap_weight,
            rule.log_rank_weight,
        ]
    )
    asked_at = _asked_at(rule.first_count, rule.further_count, pools.pool_size)
    values = [_features(pools, depth) @ weights_F + rule.intercept for depth in asked_at]
    return sigmoid_of(np.stack(values, axis=1))


def _depths(rule: AdaptiveDepthRule, chance_QA: Floats, pool_size: int) -> NDArray[np.int64]:
    asked_at = np.array(_asked_at(rule.first_count, rule.further_count, pool_size))
    stops_QA = chance_QA < rule.stop_chance
    return np.where(stops_QA.any(axis=1), asked_at[stops_QA.argmax(axis=1)], pool_size)


def _features(pools: HeldOutPools, depth: int) -> Floats:
    """Returns float64 [Q, 4], the features of AdaptiveDepthRule.chance in order."""
    read_QK = pools.match_logits[:, :depth].astype(np.float64)
    best_Q, second_Q = np.sort(read_QK, axis=1)[:, :-3:-1].T
    gap_Q = pools.similarity[:, 0] - pools.similarity[:, depth]
    rank_Q = np.full(len(best_Q), math.log(depth + 1))
    return np.stack([best_Q, best_Q - second_Q, gap_Q, rank_Q], axis=1)
