"""Renders a report as Markdown."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import fmean

from tandem.lab.evaluation.metrics import (
    NDCG_AT,
    Recall,
    mean_recall,
    mean_reciprocal_rank,
    median_rank,
)
from tandem.lab.evaluation.reports.evaluation_time import (
    EVERY_PAIR,
    EvaluationTime,
    evaluation_times,
    pair_seconds,
    reads_every_pair,
)
from tandem.lab.evaluation.reports.published import (
    published_languages,
    published_rows,
    published_times,
)
from tandem.lab.evaluation.reports.report import BE, Ranking, Report

ORDER_METRICS = (f"NDCG@{NDCG_AT}", "MAP", "MRR", "median rank")
"""What `order_cells` gives: the metrics of every answer, or of the whole order."""

SERVED_HEADS = ("direction", "order by", "p50 ms", "p95 ms", "empty", "ECE")

_SERVED_NOTE = (
    "p95: the median of those of five consecutive parts, of the searches whose pairs no cache "
    "answered, if there are at least 20. Empty: queries that no item answered. "
    "ECE: the calibration error of the match probabilities of the first ten items."
)
_FUSED_POOL_SIZE = 20
_PUBLISHED_LANGUAGES = ("en", "de", "fr", "cs")


def report_markdown(report: Report, plot_name: str | None = None) -> str:
    """Returns the report as Markdown; `plot_name` is a picture to show in it."""
    parts = [
        f"# {report.about['title']}",
        "\n".join(f"- {name}: {value}" for name, value in report.about.items() if name != "title"),
        "## Recall",
        "In percent, with 95 % Wilson intervals. p: p-value of the difference in R@1 from BE on "
        "the same queries (exact McNemar test); of an order by neighbours from the order that it "
        "reorders.",
        _by_ranking(
            report, ("R@1", "R@5", "R@10", *ORDER_METRICS, "p"), partial(_recall_cells, report)
        ),
        markdown_table(
            ("order by", "mR", "rSum"),
            ((name, f"{mean:.1f}", f"{total:.1f}") for name, mean, total in report.summaries()),
        ),
        *_notes(report),
    ]
    if report.fold_query_counts:
        fold_count = len(report.of_folds(report.rankings[0]))
        parts += [
            "## Each fold",
            "R@1, R@5 and R@10 of each fold, in percent. The figures above are over all queries.",
            _by_ranking(report, map(str, range(1, fold_count + 1)), partial(_fold_cells, report)),
        ]
    if len({language for each in report.languages.values() for language in each}) > 1:
        languages = list(dict.fromkeys(next(iter(report.languages.values()))))
        table = _by_ranking(
            report,
            languages,
            lambda ranking: (
                recall_cell(report.of_language(ranking, one).recalls[0]) for one in languages
            ),
        )
        parts += ["## R@1 by language", table]
    if plot_name:
        parts += ["## What k buys", f"![R@1 against what a query takes]({plot_name})"]
    parts += ["## Time", _times(report)]
    if served := served_rows(report):
        parts += ["## Served", _SERVED_NOTE, markdown_table(SERVED_HEADS, served)]
    if times := list(evaluation_times(report)):
        parts += [
            "## Time of the whole evaluation",
            "Both directions, the encoding of the gallery included, as in Table 4 of Geigle et al. "
            "(TACL 2022), whose times are of an NVIDIA V100, a model of 110 million parameters and "
            "five captions a picture, in batches of 512; ours are of 64 at most. Extrapolated is "
            "by the mean cost of a pair.",
            markdown_table(("order by", "of", "pairs read", "time"), _whole_times(times)),
        ]
    if rows := list(_beside_published(report)):
        parts += [
            "## Compared with the paper's figures for the same orders",
            "Geigle et al., TACL 2022, OSCAR, with one model (Joint) and two (Sep). Data sets and "
            "models differ: compare the differences between rows, not the figures themselves. "
            "R@1 / R@5 / R@10, in percent.",
            markdown_table(("order by", "whose", "data set", *report.languages, "where"), rows),
        ]
    if rows := list(_languages_beside_published(report)):
        parts += [
            "mR by language, and its plain mean; the paper's is of M3P on Multi30k (Table 2).",
            markdown_table(("order by", "whose", *_PUBLISHED_LANGUAGES, "mean"), rows),
        ]
    return "\n\n".join(parts) + "\n"


def _notes(report: Report) -> Iterator[str]:
    if any(each.pictures for each in report.rankings):
        yield (
            "Answers to several captions of one picture are correlated: intervals use the "
            "effective number of queries, and p counts a picture's captions as one query."
        )
    ties = ", ".join(f"{name} {count:,}" for name, count in report.tied_counts.items() if count)
    if ties:
        yield (
            f"Queries with an answer exactly as similar as another item: {ties}. Their order is "
            "random, but the same in every run."
        )
    if any(None in queries for each in report.rankings for queries in each.answer_ranks):
        yield (
            "Each order was searched to the depth of its pool, at least ten items. An answer below "
            "that adds nothing to MAP and MRR, so these and the median rank are not those of a "
            "full gallery."
        )


def recall_cell(recall: Recall) -> str:
    low, high = recall.interval_percent
    return f"{recall.percent:.1f}  {low:.1f}–{high:.1f}"


def order_cells(ranking: Ranking) -> tuple[str, ...]:
    """Returns NDCG@10, MAP, MRR and the median rank; empty where one is unknown."""
    shares = (ranking.ndcg, ranking.mean_average_precision, mean_reciprocal_rank(ranking.ranks))
    return (
        *("" if each is None else f"{each:.3f}" for each in shares),
        # Over half of the answers are in no list.
        f"{median:g}" if math.isfinite(median := median_rank(ranking.ranks)) else "not in a list",
    )


def served_rows(report: Report) -> list[list[str]]:
    """Returns SERVED_HEADS of each order that a server searched in."""
    return [
        [
            each.direction,
            each.order_by,
            f"{1e3 * (each.query_seconds or 0.0):.1f}",
            "" if (p95 := served.p95_seconds) is None else f"{1e3 * p95:.1f}",
            f"{100 * served.empty_count / len(each.ranks):.1f} %",
            "" if (error := served.calibration_error) is None else f"{error:.3f}",
        ]
        for each in report.rankings
        if (served := each.served) is not None
    ]


def _by_ranking(
    report: Report, heads: Iterable[str], cells: Callable[[Ranking], Iterable[str]]
) -> str:
    """Returns a table with a row for each direction and order."""
    rows = ((each.direction, each.order_by, *cells(each)) for each in report.rankings)
    return markdown_table(("direction", "order by", *heads), rows)


def _recall_cells(report: Report, ranking: Ranking) -> Sequence[str]:
    p_value = "" if ranking.order_by == BE else f"{report.p_value(ranking):.2g}"
    return (*map(recall_cell, ranking.recalls), *order_cells(ranking), p_value)


def _fold_cells(report: Report, ranking: Ranking) -> Iterator[str]:
    for fold in report.of_folds(ranking):
        yield ", ".join(f"{recall.percent:.1f}" for recall in fold.recalls)


def _times(report: Report) -> str:
    names = list(dict.fromkeys(name for parts in report.seconds.values() for name in parts))
    rows = (
        (
            direction,
            *(_figure(parts.get(name)) for name in names),
            f"{1e3 * pair_seconds(parts):.2f}" if "match" in parts else "",
        )
        for direction, parts in report.seconds.items()
    )
    queries = (
        (each.direction, each.order_by, f"{1e3 * each.query_seconds:.1f}")
        for each in report.rankings
        if each.query_seconds is not None
    )
    return "\n\n".join(
        [
            "In seconds, of the whole direction. All pairs are counted where a direction first has "
            "them:",
            markdown_table(
                ("direction", *(name.replace("_", " ") for name in names), "ms a pair"), rows
            ),
            "Of one query, in milliseconds:",
            markdown_table(("direction", "order by", "ms"), queries),
        ]
    )


def _whole_times(times: Sequence[EvaluationTime]) -> Iterator[Sequence[str]]:
    for each in times:
        yield (each.order_by, "this", f"{each.pair_count:,}", str(each))
        for data_set, pair_count, printed in published_times(each.order_by):
            yield (each.order_by, f"the paper's, {data_set}", f"{pair_count:,}", printed)


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _beside_published(report: Report) -> Iterator[Sequence[str]]:
    """Yields our row and the paper's for each order that the paper has."""
    is_enlarged = report.about.get("distractors", "none") != "none"
    for order_by in report.orders():
        first = report.ranking(next(iter(report.languages)), order_by)
        # The paper's fusions are over pools of 20.
        if not order_by.startswith(BE) and first.k != _FUSED_POOL_SIZE:
            continue
        names = _published_names(report, order_by)
        published = [row for name in names for row in published_rows(name, is_enlarged=is_enlarged)]
        if not published:
            continue
        ours = (report.ranking(direction, order_by).recalls for direction in report.languages)
        cells = (" / ".join(f"{recall.percent:.1f}" for recall in recalls) for recalls in ours)
        yield (order_by, "**this**", report.about.get("corpus", ""), *cells, "")
        for row in published:
            theirs = (
                " / ".join(f"{value:.1f}" for value in row.recalls[name])
                for name in report.languages
            )
            where = row.table + (f" ({row.note})" if row.note else "")
            yield (row.order_by, f"the paper's {row.system}", row.data_set, *theirs, where)


def _languages_beside_published(report: Report) -> Iterator[Sequence[str]]:
    asked = set.intersection(*map(set, report.languages.values()))
    ours = [language for language in _PUBLISHED_LANGUAGES if language in asked]
    if len(ours) < 2:
        return
    for order_by in report.orders():
        names = _published_names(report, order_by)
        published = [(name, *row) for name in names for row in published_languages(name)]
        if not published:
            continue
        means = {language: _mean_recall(report, order_by, language) for language in ours}
        # Over fewer languages, the mean would not be comparable with theirs.
        mean = f"{fmean(means.values()):.1f}" if len(means) == len(_PUBLISHED_LANGUAGES) else ""
        cells = (f"{means[name]:.1f}" if name in means else "" for name in _PUBLISHED_LANGUAGES)
        yield (order_by, "**this**", *cells, mean)
        for name, system, theirs in published:
            yield (name, f"the paper's {system}", *(f"{each:.1f}" for each in theirs.values()))


def _published_names(report: Report, order_by: str) -> list[str]:
    """Returns the paper's names of that order: a pool of the whole gallery is its CE alone."""
    if "judged queries" in report.about:
        return []
    return [order_by, EVERY_PAIR] if reads_every_pair(report, order_by) else [order_by]


def _mean_recall(report: Report, order_by: str, language: str) -> float:
    rankings = (report.ranking(direction, order_by) for direction in report.languages)
    of_language = (report.of_language(ranking, language) for ranking in rankings)
    return mean_recall([recall for each in of_language for recall in each.recalls])


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns the rows under their heads."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
