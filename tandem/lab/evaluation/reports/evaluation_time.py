"""Computes the duration of a whole evaluation, as in Table 4 of Geigle et al. (2022).

It covers both directions of a gallery, including encoding: by the bi-encoder, with pools of k
reranked, and with all pairs scored. The paper's times are for other pictures on a V100.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tandem.lab.evaluation.reports.report import BE, Report

EVERY_PAIR = "CE, all pairs"
"""The paper's CE without a BE: a pool of the whole gallery."""


@dataclass(frozen=True, slots=True)
class EvaluationTime:
    """Holds one order's duration over both directions."""

    order_by: str
    pair_count: int
    """Pairs that the cross-encoder scores; none is scored twice."""
    seconds: float
    is_extrapolated: bool
    """Whether pairs that were not scored are included, at the mean cost of those that were."""

    def __str__(self) -> str:
        return duration(self.seconds) + (", extrapolated" if self.is_extrapolated else "")


def evaluation_times(report: Report) -> Iterator[EvaluationTime]:
    """Yields the duration of the bi-encoder, of each k, and of all pairs.

    Yields nothing for a report without separate encoding and matching times, such as a server's.
    """
    if not all("all_pair_count" in parts for parts in report.seconds.values()):
        return
    for order_by in report.orders():
        if order_by.startswith(BE):
            # k for each query, or all there were.
            pair_counts = {
                name: min(
                    len(report.languages[name]) * report.ranking(name, order_by).k,
                    int(parts["pair_count"]),
                )
                for name, parts in report.seconds.items()
            }
            yield _time(report, order_by, pair_counts)
    every_pair = {name: int(parts["all_pair_count"]) for name, parts in report.seconds.items()}
    yield _time(report, EVERY_PAIR, every_pair)


def reads_every_pair(report: Report, order_by: str) -> bool:
    """Returns whether that order's pools are known to be the whole gallery in both directions."""
    if report.fold_query_counts or not all("all_pair_count" in p for p in report.seconds.values()):
        return False
    counts = {name: len(queries) for name, queries in report.languages.items()}
    first, second = counts
    # The second direction's count excludes the pairs that the first has scored.
    pairs = {name: parts["all_pair_count"] for name, parts in report.seconds.items()}
    pairs[second] += counts[first] * counts[second]
    return all(report.ranking(name, order_by).k >= pairs[name] / counts[name] for name in counts)


def pair_seconds(parts: Mapping[str, float]) -> float:
    return parts["match"] / parts["pair_count"]


def duration(seconds: float) -> str:
    """Formats the duration in the unit of the paper's table: seconds, minutes, hours or years."""
    units = ((60, 1, "s"), (3_600, 60, "min"), (100 * 86_400, 3_600, "h"))
    unit, name = next(
        ((unit, name) for limit, unit, name in units if seconds < limit), (365 * 86_400, "years")
    )
    value = seconds / unit
    return f"{value:,.1f} {name}" if value >= 1 else f"{value:.2g} {name}"


def _time(report: Report, order_by: str, pair_counts: Mapping[str, int]) -> EvaluationTime:
    # One encoding serves both directions and is part of both figures.
    encoding, *_ = report.seconds.values()
    seconds = encoding["encode_images"] + encoding["encode_texts"]
    if order_by != BE:
        seconds += encoding["match_tokens"]
    for name, parts in report.seconds.items():
        seconds += parts["retrieve"] + pair_counts[name] * pair_seconds(parts)
    is_extrapolated = any(
        pair_counts[name] > parts["pair_count"] for name, parts in report.seconds.items()
    )
    return EvaluationTime(order_by, sum(pair_counts.values()), seconds, is_extrapolated)
