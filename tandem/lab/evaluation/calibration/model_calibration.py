"""Fits a model's calibration on dev pools and reports it on test pools."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tandem.contract.model_description import AdaptiveDepthRule, ProbabilityCalibration
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
from tandem.lab.evaluation.calibration.probability_fit import ProbabilityQuality, fit_probability
from tandem.lab.evaluation.metrics import RECALL_AT, Recall
from tandem.lab.evaluation.reports.report_markdown import markdown_table

Pools = Mapping[str, HeldOutPools]
"""Pools by direction."""

BOTH = "both"


@dataclass(frozen=True, slots=True)
class FittedCalibration:
    """Holds both parts of a calibration, fitted on the same pools."""

    probability: ProbabilityCalibration
    adaptive_depth: AdaptiveDepthRule

    @classmethod
    def of(cls, dev: Pools, first_count: int, further_count: int, lost_points_limit: float) -> Self:
        """Fits both parts on dev, shared by both directions.

        `lost_points_limit`: points of R@1 that stopping early may lose on dev.
        """
        whole = HeldOutPools.joined(list(dev.values()))
        rule = fit_rule(whole, first_count, further_count, stop_chance=0.0)
        return cls(
            fit_probability(whole), with_most_saved(rule, list(dev.values()), lost_points_limit)
        )


@dataclass(frozen=True, slots=True)
class DepthRow:
    """Holds the result of one way of stopping in one direction."""

    direction: str
    way: str
    recalls: Sequence[Recall]
    outcome: DepthOutcome


def depth_rows(rule: AdaptiveDepthRule, pools: Pools) -> Iterator[DepthRow]:
    """Yields full rerank, rule and fixed depths, each for every direction and for both."""
    [pool_size] = {each.pool_size for each in pools.values()}
    depths = {
        f"always {pool_size}": {
            name: np.full(each.query_count, pool_size) for name, each in pools.items()
        },
        "the rule": {name: depths_read(rule, each) for name, each in pools.items()},
    }
    for fixed in range(rule.first_count, pool_size, rule.further_count):
        depths[f"always {fixed}"] = {
            name: np.full(each.query_count, fixed) for name, each in pools.items()
        }
    for way, depth in depths.items():
        outcomes = {name: outcome(depth[name], each) for name, each in pools.items()}
        found = {name: recalls(depth[name], each) for name, each in pools.items()}
        outcomes[BOTH] = joined(outcomes.values())
        found[BOTH] = [
            Recall(k, sum(each.hit_count for each in own), sum(each.query_count for each in own))
            for k, *own in zip(RECALL_AT, *found.values(), strict=True)
        ]
        for name, each in outcomes.items():
            yield DepthRow(name, way, found[name], each)


def calibration_markdown(
    fitted: FittedCalibration, dev: Pools, test: Pools, about: Mapping[str, Any]
) -> str:
    rule, probability = fitted.adaptive_depth, fitted.probability
    parts = [
        f"# {about['title']}",
        "\n".join(f"- {name}: {value}" for name, value in about.items() if name != "title"),
        "## Match probability",
        f"probability = sigmoid({probability.scale:.4f} x match logit {probability.bias:+.4f}). "
        "Expected calibration error in 15 bins of equal width: over every candidate of every pool, "
        "over the ten that a whole rerank puts first, and over the first. A match is the answer "
        "and whatever shares a caption with it.",
        markdown_table(
            (
                "pools",
                "direction",
                "probability",
                "error, all pairs",
                "error, first ten",
                "error, first",
                "Brier",
            ),
            _probability_rows(probability, {"dev": dev, "test": test}),
        ),
        "## Adaptive depth",
        "chance = sigmoid("
        f"{rule.intercept:.4f} {rule.best_logit_weight:+.4f} best logit "
        f"{rule.margin_weight:+.4f} margin {rule.similarity_gap_weight:+.4f} similarity gap "
        f"{rule.log_rank_weight:+.4f} ln rank); asked after {rule.first_count} candidates and each "
        f"{rule.further_count} more, stops below {rule.stop_chance:.5f}. Points lost are of R@1, "
        "less those gained, with the 95 % interval of paired proportions.",
    ]
    for name, pools in (("dev, fitted on", dev), ("test", test)):
        parts += [
            f"### {name}",
            markdown_table(
                (
                    "direction",
                    "reads",
                    "pairs a query",
                    "saved",
                    "R@1",
                    "R@5",
                    "R@10",
                    "points lost",
                    "lost / gained",
                    "another first",
                ),
                (_depth_cells(row) for row in depth_rows(rule, pools)),
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _probability_rows(
    calibration: ProbabilityCalibration, pools: Mapping[str, Pools]
) -> Iterator[tuple[str, ...]]:
    ways = {"bare sigmoid": ProbabilityCalibration(), "calibrated": calibration}
    for name, directions in pools.items():
        whole = {**directions, BOTH: HeldOutPools.joined(list(directions.values()))}
        for direction, each in whole.items():
            for way, tried in ways.items():
                quality = ProbabilityQuality.of(tried, each)
                yield (
                    name,
                    direction,
                    way,
                    f"{quality.pool_error:.4f}",
                    f"{quality.returned_error:.4f}",
                    f"{quality.first_error:.4f}",
                    f"{quality.brier:.4f}",
                )


def _depth_cells(row: DepthRow) -> tuple[str, ...]:
    low, high = row.outcome.lost_interval_points
    return (
        row.direction,
        row.way,
        f"{row.outcome.pair_count / row.outcome.query_count:.1f}",
        f"{row.outcome.saved_percent:.1f} %",
        *(f"{recall.percent:.2f}" for recall in row.recalls),
        f"{row.outcome.lost_points:.2f}  {low:.2f} to {high:.2f}",
        f"{row.outcome.lost_count} / {row.outcome.gained_count}",
        f"{100 * row.outcome.other_first_count / row.outcome.query_count:.2f} %",
    )
