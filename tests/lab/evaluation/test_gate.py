"""The gate: equal models pass, worse ones do not, and each refusal has its name and figures."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tandem.lab.evaluation.gate import GateReason, gate_verdict
from tandem.lab.evaluation.reports.report import OF_THEM_ONLY, Ranking, Report
from tandem.lab.evaluation.reports.served_figures import BIN_COUNT, ServedFigures

POOL = 20


def report_of(
    random: np.random.Generator,
    query_count: int,
    recall: float,
    *,
    redrawn: float = 1.0,
    auc: float = 0.9,
    shift: float = 0.0,
    seconds: float = 0.05,
) -> Report:
    """Returns a simulated report: `shift` moves each probability away from what it should be.

    A query is as hard for every model as for another, except for the redrawn share of the queries.
    """
    rankings = []
    for direction in ("text→image", "image→text"):
        hardness = np.random.default_rng(query_count).random(query_count)
        is_redrawn = random.random(query_count) < redrawn
        hits = np.where(is_redrawn, random.random(query_count), hardness) < recall
        ranks = tuple(1 if hit else 2 for hit in hits)
        aucs = tuple(float(random.beta(auc * 9, (1 - auc) * 9)) for _ in range(query_count))
        gaps = np.zeros((query_count, BIN_COUNT))
        probabilities = random.beta(0.2, 0.8, (query_count, POOL))
        is_relevant = random.random((query_count, POOL)) < probabilities
        shown = np.clip(probabilities + shift, 0, 1)
        bins = np.minimum((shown * BIN_COUNT).astype(int), BIN_COUNT - 1)
        for row in range(query_count):
            np.add.at(gaps[row], bins[row], shown[row] - is_relevant[row])
        served = ServedFigures(seconds, 0, query_count * POOL, aucs, tuple(map(tuple, gaps)))
        further = ((),) * query_count
        rankings.append(Ranking(direction, "BE", 0, ranks, None, (), further))
        final = (direction, f"BE + CE {POOL}", POOL, ranks, seconds, (), further, None, served)
        rankings.append(Ranking(*final))
    names: dict[str, Sequence[str]] = {each.direction: [""] * query_count for each in rankings}
    return Report({}, names, tuple(rankings), {})


def reasons(candidate: Report, serving: Report) -> set[GateReason]:
    return {each.reason for each in gate_verdict(candidate, serving)}


def test_an_equal_model_passes_with_every_seed() -> None:
    """docs/evaluation.md has the rate of more seeds."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        query_count = (60, 200, 1_000)[seed % 3]
        first, second = (report_of(random, query_count, 0.7, redrawn=0.2) for _ in range(2))
        assert gate_verdict(first, second, 7, 7) == []


def test_a_model_five_points_worse_is_refused() -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        worse = report_of(random, 1_000, 0.65, redrawn=0.2)
        serving = report_of(random, 1_000, 0.7, redrawn=0.2)
        refusals = gate_verdict(worse, serving)
        assert {each.reason for each in refusals} == {GateReason.RECALL_WORSE}
        assert re.search(r"R@1 6\d\.\d % instead of [67]\d\.\d %, p = ", str(refusals[0]))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"auc": 0.1}, GateReason.CROSS_ENCODER_REVERSED),
        ({"shift": 0.1}, GateReason.CALIBRATION_WORSE),
        ({"seconds": 0.11}, GateReason.LATENCY_WORSE),
    ],
)
def test_each_fault_is_refused_by_its_name(fault: dict[str, float], reason: GateReason) -> None:
    random = np.random.default_rng(0)
    good, bad = report_of(random, 100, 0.7), report_of(random, 100, 0.7, **fault)

    assert reasons(bad, good) == {reason}
    # The other way it is an improvement.
    assert reasons(good, bad) == set()


def test_what_both_lack_does_not_matter_and_what_was_bad_may_stay() -> None:
    """A calibration error that is not larger than before is no reason; nor is a weak model."""
    random = np.random.default_rng(0)
    bad = report_of(random, 100, 0.3, auc=0.5, shift=0.1)

    assert gate_verdict(bad, bad, 5, 5) == []


def test_without_queries_or_with_another_count_it_is_refused() -> None:
    report = report_of(np.random.default_rng(0), 50, 0.7)

    assert [each.reason for each in gate_verdict(None, None, 5, 5)] == ["JUDGED_QUERIES_MISSING"]
    [refusal] = gate_verdict(report, report, 19_999, 20_000)
    assert str(refusal) == "ITEM_COUNT_DIFFERS: 19,999 items, and 20,000 serve"
    drawn = replace(report, about={OF_THEM_ONLY: "queries at which be and ce differ"})
    assert reasons(drawn, drawn) == {GateReason.JUDGED_QUERIES_MISSING}
