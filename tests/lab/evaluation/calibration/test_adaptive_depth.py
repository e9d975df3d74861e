"""Adaptive depth: the rule that is served, as it is fitted, and what it saves and loses."""

from dataclasses import replace

import numpy as np
import pytest

from tandem.contract.model_description import AdaptiveDepthRule
from tandem.lab.evaluation.calibration.adaptive_depth import (
    DepthOutcome,
    depths_read,
    fit_rule,
    joined,
    outcome,
    recalls,
    with_most_saved,
)
from tandem.lab.evaluation.calibration.held_out_pools import HeldOutPools
from tests.support.evaluation.made_pools import made_pools


def depth_by_asking(rule: AdaptiveDepthRule, pools: HeldOutPools, query: int) -> int:
    """Returns a query's depth as a service finds it: one chunk after another, by chance()."""
    similarity, logits = pools.similarity[query], pools.match_logits[query]
    depth = rule.first_count
    while depth < pools.pool_size:
        second, best = sorted(map(float, logits[:depth]))[-2:]
        gap = float(similarity[0] - similarity[depth])
        if rule.chance(best, second, gap, depth + 1) < rule.stop_chance:
            return depth
        depth += rule.further_count
    return pools.pool_size


@pytest.mark.parametrize(("first", "further"), [(5, 3), (2, 1)])
def test_it_reads_the_pairs_that_a_service_would_read(first: int, further: int) -> None:
    """The chunks, the features and the comparison are those of AdaptiveDepthRule.chance."""
    pools = made_pools(query_count=300, seed=3)
    rule = fit_rule(pools, first, further, stop_chance=0.05)

    depths = depths_read(rule, pools)

    assert depths.tolist() == [depth_by_asking(rule, pools, query) for query in range(300)]
    assert len(set(depths.tolist())) > 1


def test_its_chance_is_true_of_pools_it_was_not_fitted_on() -> None:
    rule = fit_rule(made_pools(seed=4), 4, 4, stop_chance=0.1)
    test = made_pools(seed=5)

    depths = depths_read(rule, test)

    stopped = depths < test.pool_size
    is_ahead = test.match_logits.argmax(axis=1) >= depths
    assert stopped.mean() > 0.3
    assert is_ahead[stopped].mean() < 0.1


def test_the_limit_is_kept_and_a_higher_one_saves_more() -> None:
    """On dev; on other pools it may be passed a little, and R@1 is what it is about."""
    dev = [made_pools(seed=6), made_pools(seed=7)]
    rule = fit_rule(HeldOutPools.joined(dev), 4, 4, stop_chance=0.0)

    outcomes = []
    for limit in (0.2, 1.0):
        chosen = with_most_saved(rule, dev, limit)
        outcomes.append(joined(outcome(depths_read(chosen, each), each) for each in dev))
        assert outcomes[-1].lost_interval_points[1] <= limit

    assert 0 < outcomes[0].saved_percent < outcomes[1].saved_percent


def test_without_room_nothing_is_saved() -> None:
    """A limit that no stopping keeps gives a rule that never stops."""
    dev = made_pools(seed=8)
    rule = fit_rule(dev, 4, 4, stop_chance=0.5)

    chosen = with_most_saved(rule, [dev], lost_points_limit=-1.0)

    assert chosen == replace(rule, stop_chance=0.0)
    assert (depths_read(chosen, dev) == dev.pool_size).all()


def test_losses_of_a_depth_match_a_worked_example() -> None:
    """Three queries: the first one's answer is left unread, the second's is found only so."""
    is_answer = np.array([[False, False, True], [True, False, False], [True, False, False]])
    pools = HeldOutPools(
        similarity=np.zeros((3, 3)),
        match_logits=np.array([[1.0, 0.0, 2.0], [1.0, 0.0, 2.0], [3.0, 0.0, 2.0]]),
        is_answer=is_answer,
        is_match=is_answer,
    )

    found = outcome(np.array([2, 2, 2]), pools)

    assert found == DepthOutcome(3, 6, 9, lost_count=1, gained_count=1, other_first_count=2)
    assert found.saved_percent == pytest.approx(100 / 3)
    assert found.lost_points == 0
    assert outcome(np.array([3, 3, 3]), pools) == DepthOutcome(3, 9, 9, 0, 0, 0)


def test_unread_candidates_rank_after_read_ones() -> None:
    """In the bi-encoder's order; an answer that the pool lacks is found at no rank."""
    is_answer = np.zeros((3, 12), bool)
    is_answer[0, 0] = is_answer[1, 6] = True
    logits = np.tile(np.arange(12.0), (3, 1))
    pools = HeldOutPools(np.zeros((3, 12)), logits, is_answer, is_answer)

    # Of 8 read, the logits turn the first 8 round: rank 8 and rank 2.
    shortened = [each.hit_count for each in recalls(np.array([8, 8, 8]), pools)]
    # Of 2 read, rank 2 and, unread, still rank 7.
    shorter = [each.hit_count for each in recalls(np.array([2, 2, 2]), pools)]

    assert shortened == [0, 1, 2]
    assert shorter == [0, 1, 2]
    # Read whole: rank 12 and rank 6.
    assert [each.hit_count for each in recalls(np.array([12, 12, 12]), pools)] == [0, 0, 1]


def test_an_interval_of_few_queries_is_wide_without_a_loss() -> None:
    """The end of it falls as queries are added, and is never at nothing."""
    few, many = (DepthOutcome(n, n, 2 * n, 0, 0, 0).lost_interval_points for n in (100, 10_000))

    assert few[1] > 1.0
    assert 0 < many[1] < 0.05
