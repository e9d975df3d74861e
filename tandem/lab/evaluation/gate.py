"""Decides from two reports of the same queries whether a model may replace the one that serves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from tandem.lab.evaluation.metrics import paired_p_value
from tandem.lab.evaluation.reports.report import BE, OF_THEM_ONLY, Ranking, Report
from tandem.lab.evaluation.reports.served_figures import ServedFigures

MAX_RECALL_DROP_POINTS: Final = 1.0
MAX_CALIBRATION_ERROR: Final = 0.03
MAX_LATENCY_RATIO: Final = 2.0
# Of all tests together (Bonferroni), each of which can fail on one of its two sides only.
_LEVEL: Final = 0.05
_TESTS_PER_DIRECTION: Final = 3
_RESAMPLE_COUNT: Final = 2_000


class GateReason(StrEnum):
    """Names why a model is refused."""

    JUDGED_QUERIES_MISSING = "JUDGED_QUERIES_MISSING"
    ITEM_COUNT_DIFFERS = "ITEM_COUNT_DIFFERS"
    RECALL_WORSE = "RECALL_WORSE"
    CROSS_ENCODER_REVERSED = "CROSS_ENCODER_REVERSED"
    CALIBRATION_WORSE = "CALIBRATION_WORSE"
    LATENCY_WORSE = "LATENCY_WORSE"


@dataclass(frozen=True, slots=True)
class GateRefusal:
    reason: GateReason
    why: str
    """With the figures."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.why}"


def gate_verdict(
    candidate: Report | None,
    serving: Report | None,
    candidate_count: int | None = None,
    serving_count: int | None = None,
) -> list[GateRefusal]:
    """Returns why the candidate may not replace what serves; empty if it may.

    The reports are of the same queries in the same order; None if there are no judged queries. The
    counts are of items; None leaves them out. Of each direction the order with the largest pool is
    compared, which a search gives. An equal model is refused in fewer than 1 of 100 cases.
    """
    refusals = []
    if candidate_count != serving_count:
        why = f"{candidate_count:,} items, and {serving_count:,} serve"
        refusals.append(GateRefusal(GateReason.ITEM_COUNT_DIFFERS, why))
    if candidate is None or serving is None:
        why = "without judged queries nothing says which model is better: give some"
        return [*refusals, GateRefusal(GateReason.JUDGED_QUERIES_MISSING, why)]
    if drawn := candidate.about.get(OF_THEM_ONLY):
        why = f"these are only {drawn}: tandem golden status compares those systems"
        return [*refusals, GateRefusal(GateReason.JUDGED_QUERIES_MISSING, why)]
    level = _LEVEL / (_TESTS_PER_DIRECTION * len(serving.languages))
    for direction in serving.languages:
        now, before = (_final(report, direction) for report in (candidate, serving))
        for reason, why in _faults(now, before, level):
            refusals.append(GateRefusal(reason, f"{direction}, {now.order_by}: {why}"))
    return refusals


def _final(report: Report, direction: str) -> Ranking:
    """Returns the order with the largest pool, without fusions and orders by neighbours."""
    names = {BE, *(f"{BE} + CE {each.k}" for each in report.rankings)}
    orders = (each for each in report.rankings if each.direction == direction)
    return max((each for each in orders if each.order_by in names), key=lambda each: each.k)


def _faults(now: Ranking, before: Ranking, level: float) -> Iterator[tuple[GateReason, str]]:
    if now.k and before.k and now.k != before.k:
        raise ValueError(f"pools of {now.k} and {before.k} are not comparable: take one --rerank-k")
    recall, recall_before = now.recalls[0].percent, before.recalls[0].percent
    p_value = paired_p_value(now.hit_counts, before.hit_counts)
    if recall_before - recall > MAX_RECALL_DROP_POINTS and p_value < level:
        yield (
            GateReason.RECALL_WORSE,
            f"R@1 {recall:.1f} % instead of {recall_before:.1f} %, p = {p_value:.2g} < {level:.2g}",
        )
    if now.served is None:
        return
    if (share := _share_reversed(now.served.pool_aucs, level)) is not None:
        yield (
            GateReason.CROSS_ENCODER_REVERSED,
            f"a relevant item is put before another in {100 * share:.0f} % of the pairs, and by "
            "chance in 50 %: is the sign of the match logit reversed?",
        )
    if before.served is None:
        return
    error, error_before = now.served.calibration_error, before.served.calibration_error
    if error is None and error_before is not None:
        why = f"no calibration, and what serves has one (ECE {error_before:.3f}); calibrate it"
        yield GateReason.CALIBRATION_WORSE, why
    elif (error or 0.0) > MAX_CALIBRATION_ERROR and (
        error_before is None or _is_error_larger(now.served, before.served, level)
    ):
        than = "" if error_before is None else f" instead of {error_before:.3f}"
        why = f"ECE {error:.3f}{than}, and {MAX_CALIBRATION_ERROR:.2f} may be; calibrate it"
        yield GateReason.CALIBRATION_WORSE, why
    p95, p95_before = now.served.p95_seconds, before.served.p95_seconds
    if p95 and p95_before and (ratio := p95 / p95_before) > MAX_LATENCY_RATIO:
        times = f"{1e3 * p95:.0f} ms instead of {1e3 * p95_before:.0f} ms"
        yield GateReason.LATENCY_WORSE, f"p95 {times}, {ratio:.1f} times"


def _share_reversed(aucs: Sequence[float | None], level: float) -> float | None:
    """Returns how often the CE orders a pair rightly, if that is surely less often than not."""
    known = [each for each in aucs if each is not None]
    if not known or (share := sum(known) / len(known)) >= 0.5:
        return None
    right, wrong = [each > 0.5 for each in known], [each < 0.5 for each in known]
    return share if paired_p_value(right, wrong) < level else None


def _is_error_larger(now: ServedFigures, before: ServedFigures, level: float) -> bool:
    """Returns whether the calibration error is surely larger: by a paired bootstrap of queries."""
    count = len(now.gaps)
    weights_RQ = np.random.default_rng(0).multinomial(
        count, np.full(count, 1 / count), _RESAMPLE_COUNT
    )
    errors = [
        np.abs(weights_RQ @ np.array(each.gaps)).sum(axis=1) / each.shown_count
        for each in (now, before)
    ]
    return bool(np.quantile(errors[0] - errors[1], level / 2) > 0)
