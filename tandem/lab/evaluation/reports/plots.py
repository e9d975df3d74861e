"""Plots reports."""

from pathlib import Path

from matplotlib.figure import Figure

from tandem.lab.evaluation.reports.report import BE, Report


def plot_recall_against_time(report: Report, path: Path) -> None:
    """Plots R@1 against the time of a query, one line per direction and one point per k."""
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    timed = [each for each in report.rankings if each.query_seconds is not None]
    of_k = [each for each in timed if each.order_by.startswith(BE)]
    ladders = {
        direction: [each for each in of_k if each.direction == direction]
        for direction in report.languages
    }
    higher = max(ladders, key=lambda name: sum(each.recalls[0].percent for each in ladders[name]))
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
    axes.set_xlabel("one query, ms")
    axes.set_ylabel("R@1, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    # Recall rises to the right and flattens at the top. Matplotlib's own search for a free corner
    # warns when it takes over a second, as it may on a busy machine.
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)
