"""Plots reports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tandem.evaluation.report import BE, Ranking, Report

_SIZE_INCHES = (7.0, 4.2)


def plot_recall_against_time(report: Report, path: Path) -> None:
    """Plots R@1 against the time of a query, one line per direction and one point per k."""
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    ladders = {direction: _ladder(report, direction) for direction in report.languages}
    higher = max(ladders, key=lambda direction: _mean_percent(ladders[direction]))
    for direction, ladder in ladders.items():
        # Labels of the higher line above it, of the other below, so that close lines stay legible.
        label_points = 7 if direction == higher else -14
        milliseconds = [1e3 * (each.query_seconds or 0.0) for each in ladder]
        recalls = [each.recalls[0] for each in ladder]
        percents = [recall.percent for recall in recalls]
        below = [recall.percent - recall.interval_percent[0] for recall in recalls]
        above = [recall.interval_percent[1] - recall.percent for recall in recalls]
        line = axes.errorbar(
            milliseconds, percents, yerr=[below, above], marker="o", capsize=3, label=direction
        )
        for each, x, y in zip(ladder, milliseconds, percents, strict=True):
            axes.annotate(
                "BE" if each.k == 0 else f"k = {each.k}",
                (x, y),
                textcoords="offset points",
                xytext=(4, label_points),
                fontsize=8,
                color=line[0].get_color(),
            )
    # It may contain a path: no math, and no lone surrogates, which no font has.
    title = str(report.about["title"]).encode(errors="backslashreplace").decode()
    axes.set_title(title, fontsize=10, loc="left", parse_math=False)
    _finish(axes, "one query, ms", "R@1, %")
    figure.savefig(path, dpi=150)


def plot_sample_efficiency(reports: Mapping[int, Sequence[Report]], path: Path, k: int) -> None:
    """Plots R@1 against the number of training pictures, averaged over the seeds.

    `reports` are by the number of pictures, one per seed. Each direction has a dashed line for BE
    and a solid one with `k` reranked. Bars span the lowest to the highest seed.
    """
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    counts = sorted(reports)
    directions = next(iter(reports.values()))[0].languages
    for number, direction in enumerate(directions):
        for order_by, style in ((BE, "--"), (f"{BE} + CE {k}", "-")):
            percents = [
                [each.ranking(direction, order_by).recalls[0].percent for each in reports[count]]
                for count in counts
            ]
            means = [fmean(of_count) for of_count in percents]
            below = [mean - min(each) for mean, each in zip(means, percents, strict=True)]
            above = [max(each) - mean for mean, each in zip(means, percents, strict=True)]
            axes.errorbar(
                counts,
                means,
                yerr=[below, above],
                fmt=f"o{style}",
                capsize=3,
                color=f"C{number}",
                label=f"{direction}, {order_by}",
            )
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.minorticks_off()
    axes.set_ylim(0, 103)
    _finish(axes, "pictures trained on", "R@1, %")
    figure.savefig(path, dpi=150)


def _ladder(report: Report, direction: str) -> list[Ranking]:
    """Returns the rankings of BE and each k whose query time is known."""
    return [
        each
        for each in report.rankings
        if each.direction == direction
        and each.query_seconds is not None
        and each.order_by.startswith(BE)
    ]


def _mean_percent(ladder: Sequence[Ranking]) -> float:
    return fmean(each.recalls[0].percent for each in ladder) if ladder else 0.0


def _finish(axes: Axes, x_name: str, y_name: str) -> None:
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    # Recall rises to the right and flattens at the top. Matplotlib's own search for a free corner
    # warns when it takes over a second, as it may on a busy machine.
    axes.legend(frameon=False, loc="lower right")
