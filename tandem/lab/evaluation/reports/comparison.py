"""Compares systems on the same queries, each with one report per seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tandem.lab.evaluation.metrics import paired_p_value
from tandem.lab.evaluation.reports.report import Ranking, Report
from tandem.lab.evaluation.reports.spread import Spread

# Fields that are equal in two reports of the same queries.
_SAME = (
    "split",
    "seed",
    "galleries",
    "language",
    "distractors",
    "answers",
    "refused by the server",
)
# These have a corpus's path, which may be spelled in two ways where equal digests say that the
# records are the same.
_SAME_OF_ONE_PATH = ("corpus", "skipped")


@dataclass(frozen=True, slots=True)
class ComparedOrder:
    """Holds one direction and order of one system."""

    system: str
    direction: str
    order_by: str
    recall_at_1: Spread
    difference: float
    """Of the means from the first system, in points; the p-value is of the same queries."""
    p_value: float


def compare(systems: Mapping[str, Sequence[Report]]) -> Iterator[ComparedOrder]:
    """Yields every order that all systems have, for each system, compared with the first.

    Raises ValueError naming the field if two reports are of different queries, and if systems have
    different numbers of seeds.
    """
    first_name, *_ = systems
    first = systems[first_name]
    for name, reports in systems.items():
        if len(reports) != len(first):
            raise ValueError(f"{first_name} has {len(first)} seeds and {name} has {len(reports)}")
        for report in reports:
            _check_same_queries(name, report, first[0])
    every = [report.rankings for reports in systems.values() for report in reports]
    shared = set.intersection(
        *({(each.direction, each.order_by, each.k) for each in rankings} for rankings in every)
    )
    for ranking in first[0].rankings:
        if (ranking.direction, ranking.order_by, ranking.k) not in shared:
            continue
        key = (ranking.direction, ranking.order_by)
        base = [report.ranking(*key) for report in first]
        for name, reports in systems.items():
            rankings = [report.ranking(*key) for report in reports]
            spread = _spread(rankings)
            yield ComparedOrder(
                name,
                *key,
                spread,
                spread.mean - _spread(base).mean,
                paired_p_value(_hit_counts(rankings), _hit_counts(base)),
            )


def _spread(rankings: Sequence[Ranking]) -> Spread:
    return Spread(tuple(each.recalls[0].percent for each in rankings))


def _hit_counts(rankings: Sequence[Ranking]) -> list[int]:
    """Returns for each picture the number of its queries that were answered, over the seeds."""
    return [sum(of_one) for of_one in zip(*(each.hit_counts for each in rankings), strict=True)]


def _check_same_queries(name: str, report: Report, first: Report) -> None:
    digests = [each.about.get("corpus digest") for each in (report, first)]
    are_known = None not in digests  # Reports of earlier releases have none.
    is_one_corpus = are_known and digests[0] == digests[1]
    for field in _SAME if is_one_corpus else (*_SAME_OF_ONE_PATH, *_SAME):
        if report.about.get(field) != first.about.get(field):
            raise ValueError(
                f"{name} was measured with {field} {report.about.get(field)}, "
                f"the first with {first.about.get(field)}: their recalls are of different queries"
            )
    if are_known and not is_one_corpus:
        raise ValueError(
            f"{name} and the first have other pictures or captions under the same names: their "
            "corpus digests differ"
        )
    for direction, languages in first.languages.items():
        if len(report.languages.get(direction, ())) != len(languages):
            raise ValueError(f"{name} answers another number of {direction} queries than the first")
    pictures = {each.direction: each.pictures for each in first.rankings}
    if any(
        each.pictures != pictures.get(each.direction, each.pictures) for each in report.rankings
    ):
        raise ValueError(
            f"{name} and the first group captions by picture differently: measure again what an "
            "earlier release measured"
        )
