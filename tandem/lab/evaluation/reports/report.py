"""Defines the report of an evaluation, and reads and writes it as JSON.

It has the rank of every query, so that two reports of the same queries can be compared pairwise.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, chain, pairwise, repeat
from pathlib import Path
from typing import Any, Final, Self

from tandem.lab.evaluation.metrics import (
    NDCG_AT,
    RECALL_AT,
    Recall,
    mean_average_precision,
    mean_recall,
    mean_reciprocal_rank,
    median_rank,
    ndcg,
    paired_p_value,
    recall_at,
    recall_sum,
)
from tandem.lab.evaluation.reports.served_figures import ServedFigures
from tandem.platform.files.json_object import from_fields
from tandem.platform.files.whole_file import write_whole

FORMAT_VERSION = 1
BE = "BE"
OF_THEM_ONLY: Final = "of them only"
"""What a report is about, if its judged queries were chosen because two systems differ there."""
NO_CROSS_ENCODER: Final = "there is no cross-encoder: only the bi-encoder is measured"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Holds the ranks of one order in one direction, query by query."""

    direction: str
    order_by: str
    """BE, BE + CE 20, or a fusion of both."""
    k: int
    """Items that the cross-encoder scored per query; 0 for BE alone."""
    ranks: tuple[int | None, ...]
    """Rank of each query's best answer, from 1; None if it is outside the searched depth."""
    query_seconds: float | None = None
    pictures: tuple[int, ...] = ()
    """Number of each query's picture; empty if no two share one."""
    other_ranks: tuple[tuple[int | None, ...], ...] | None = None
    """Ranks of each query's further answers; None if unknown."""
    ndcgs: tuple[float, ...] | None = None
    """NDCG@10 of each query by its grades; None where the ranks give it."""
    served: ServedFigures | None = None
    """Of a server's answers in this order; None if it was not searched for."""

    @property
    def recalls(self) -> tuple[Recall, ...]:
        return tuple(recall_at(self.ranks, k, self.pictures) for k in RECALL_AT)

    @property
    def ndcg(self) -> float | None:
        """NDCG@10; None if the ranks of further answers are unknown, as in MAP."""
        if self.ndcgs is not None:
            return statistics.fmean(self.ndcgs)
        return None if self.other_ranks is None else ndcg(self.answer_ranks, NDCG_AT)

    @property
    def mean_average_precision(self) -> float | None:
        return None if self.other_ranks is None else mean_average_precision(self.answer_ranks)

    @property
    def answer_ranks(self) -> list[tuple[int | None, ...]]:
        """The ranks of each query's answers as far as they are known, the best first."""
        further = repeat(()) if self.other_ranks is None else self.other_ranks
        return [(best, *rest) for best, rest in zip(self.ranks, further, strict=False)]

    @property
    def hit_counts(self) -> list[int]:
        """Number of queries with their answer first, by picture, for a paired test."""
        counts: Counter[int] = Counter()
        for picture, rank in zip(self.pictures or range(len(self.ranks)), self.ranks, strict=True):
            counts[picture] += rank == 1
        return list(counts.values())

    def of_places(self, places: Sequence[int]) -> Self:
        return replace(
            self,
            ranks=tuple(self.ranks[place] for place in places),
            query_seconds=None,
            pictures=tuple(self.pictures[place] for place in places if self.pictures),
            other_ranks=self.other_ranks and tuple(self.other_ranks[place] for place in places),
            ndcgs=self.ndcgs and tuple(self.ndcgs[place] for place in places),
            served=None,
        )


@dataclass(frozen=True, slots=True)
class Report:
    about: Mapping[str, Any]
    """Corpus, split, gallery, seed, model, precision, machine and command: what made the ranks."""
    languages: Mapping[str, Sequence[str]]
    """Of each query, by direction."""
    rankings: tuple[Ranking, ...]
    seconds: Mapping[str, Mapping[str, float]]
    """Durations of its parts, by direction."""
    tied_counts: Mapping[str, int] = field(default_factory=dict)
    """Queries with an answer exactly as similar as another item, by direction; empty for a server.

    Their ids break the tie: at random, but the same in every run.
    """
    fold_query_counts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Number of queries of each fold, by direction; empty if the gallery was searched as one."""

    def ranking(self, direction: str, order_by: str) -> Ranking:
        for each in self.rankings:
            if (each.direction, each.order_by) == (direction, order_by):
                return each
        raise KeyError(f"no {order_by!r} of {direction} in this report")

    def orders(self) -> list[str]:
        return list(dict.fromkeys(each.order_by for each in self.rankings))

    def summaries(self) -> Iterator[tuple[str, float, float]]:
        """Yields each order of two directions with its mR and rSum over both."""
        for order_by in self.orders():
            of_order = [each for each in self.rankings if each.order_by == order_by]
            if len(of_order) != 2:
                continue
            recalls = [recall for each in of_order for recall in each.recalls]
            yield order_by, mean_recall(recalls), recall_sum(recalls)

    def p_value(self, ranking: Ranking) -> float:
        """Returns the p-value of its difference in R@1 from its base on the same queries."""
        base = self.ranking(ranking.direction, self.base_of(ranking.order_by))
        return paired_p_value(ranking.hit_counts, base.hit_counts)

    def base_of(self, order_by: str) -> str:
        """Returns the order that another one reorders: BE, or that before its last plus sign."""
        base, _, _ = order_by.rpartition(" + ")
        return base if base in self.orders() else BE

    def of_language(self, ranking: Ranking, language: str) -> Ranking:
        languages = self.languages[ranking.direction]
        return ranking.of_places([n for n, each in enumerate(languages) if each == language])

    def of_folds(self, ranking: Ranking) -> list[Ranking]:
        """Returns the ranking of each fold; empty if there are none."""
        ends = list(accumulate(self.fold_query_counts.get(ranking.direction, ()), initial=0))
        return [ranking.of_places(range(start, end)) for start, end in pairwise(ends)]

    def as_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "about": dict(self.about),
            "seconds": {name: dict(parts) for name, parts in self.seconds.items()},
            "tied_counts": dict(self.tied_counts),
            "fold_query_counts": {
                name: list(each) for name, each in self.fold_query_counts.items()
            },
            "measures": [self._measures(each) for each in self.rankings],
            "mean_recall_and_sum": {name: [mean, total] for name, mean, total in self.summaries()},
            "languages": {name: list(each) for name, each in self.languages.items()},
            # Once per direction, because its rankings are of the same queries.
            "pictures": {each.direction: each.pictures for each in self.rankings if each.pictures},
            "rankings": [
                {name: value for name, value in asdict(each).items() if name != "pictures"}
                for each in self.rankings
            ],
        }

    def write(self, path: Path) -> None:
        """Writes `as_json`, and replaces an older report atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_json(), ensure_ascii=False, indent=1) + "\n"
        # Lone surrogates, as in a path that is not UTF-8, are written as JSON escapes.
        data = text.encode(errors="backslashreplace")
        write_whole(path, lambda fresh: fresh.write_bytes(data))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads what `write` wrote, or report.json in a folder.

        Raises OSError, or ValueError naming the file.
        """
        path = path / "report.json" if path.is_dir() else path
        try:
            return cls._of_json(json.loads(path.read_text(encoding="utf-8")))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} is not a report of this version: {why}") from error

    @classmethod
    def _of_json(cls, content: Mapping[str, Any]) -> Self:
        if content["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format {content['format_version']} instead of {FORMAT_VERSION}")
        rankings = tuple(
            from_fields(
                Ranking, each | {"pictures": content["pictures"].get(each["direction"], ())}
            )
            for each in content["rankings"]
        )
        ties, folds = content["tied_counts"], content["fold_query_counts"]
        languages = {name: list(each) for name, each in content["languages"].items()}
        if not rankings:
            raise ValueError("it has no rankings")
        return cls(content["about"], languages, rankings, content["seconds"], ties, folds)

    def _measures(self, ranking: Ranking) -> dict[str, Any]:
        return {
            "direction": ranking.direction,
            "order_by": ranking.order_by,
            "query_count": len(ranking.ranks),
            "recall_percent": {f"R@{each.k}": each.percent for each in ranking.recalls},
            "interval_percent": {f"R@{each.k}": each.interval_percent for each in ranking.recalls},
            "mean_reciprocal_rank": mean_reciprocal_rank(ranking.ranks),
            f"ndcg_at_{NDCG_AT}": ranking.ndcg,
            "mean_average_precision": ranking.mean_average_precision,
            "calibration_error": ranking.served and ranking.served.calibration_error,
            # JSON knows no infinity.
            "median_rank": str(median_rank(ranking.ranks)),
            "p_value_against_be": self.p_value(ranking),
            "recall_percent_of_folds": [
                {f"R@{each.k}": each.percent for each in fold.recalls}
                for fold in self.of_folds(ranking)
            ],
        }


def joined(reports: Sequence[Report]) -> Report:
    """Joins the reports of one gallery's folds, each of which was searched separately.

    `about` is taken from the last fold, so counts in it must be totals.
    """
    first = reports[0]
    rankings = map(_of_all_folds, zip(*(report.rankings for report in reports), strict=True))
    languages = {
        name: [language for report in reports for language in report.languages[name]]
        for name in first.languages
    }
    seconds = {
        name: {part: sum(report.seconds[name][part] for report in reports) for part in parts}
        for name, parts in first.seconds.items()
    }
    ties = {name: sum(report.tied_counts[name] for report in reports) for name in first.tied_counts}
    about = {key: value for report in reports for key, value in report.about.items()}
    folds = {name: [len(report.languages[name]) for report in reports] for name in languages}
    folds = folds if len(reports) > 1 else {}
    return Report(about, languages, tuple(rankings), seconds, ties, folds)


def _of_all_folds(folds: Sequence[Ranking]) -> Ranking:
    """Returns the ranking of all queries; further answers are unknown where a fold's are."""
    seconds = [each.query_seconds for each in folds if each.query_seconds is not None]
    further = [each.other_ranks for each in folds if each.other_ranks is not None]
    return replace(
        folds[0],
        ranks=tuple(chain.from_iterable(each.ranks for each in folds)),
        query_seconds=statistics.fmean(seconds) if seconds else None,
        pictures=_renumbered(folds),
        other_ranks=tuple(chain.from_iterable(further)) if len(further) == len(folds) else None,
        # Answers of galleries are equally relevant, so that ranks give the same NDCG.
        ndcgs=folds[0].ndcgs if len(folds) == 1 else None,
        served=folds[0].served if len(folds) == 1 else None,
    )


def _renumbered(folds: Sequence[Ranking]) -> tuple[int, ...]:
    """Returns the pictures of all queries, renumbered so that folds do not share numbers."""
    if not any(each.pictures for each in folds):
        return ()
    numbers: dict[tuple[int, int], int] = {}
    return tuple(
        numbers.setdefault((fold, picture), len(numbers))
        for fold, ranking in enumerate(folds)
        for picture in ranking.pictures or range(len(ranking.ranks))
    )
