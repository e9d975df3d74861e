"""Plots what train_grid measures over several seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tandem.lab.evaluation.reports.report import BE, Report
from tandem.lab.training.runs.loss_curve import read_curve


def plot_dev_recalls(runs: Mapping[str, Sequence[Path]], path: Path) -> None:
    """Plots dev R@1 over the rounds, before and after reranking, averaged over each run's seeds.

    A run that only trains the CE is left out: its dev pairs a text with every image of a smaller
    set, which is not comparable.
    """
    figure = Figure(figsize=(11.0, 4.0), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, name, title in zip(
        panels, ("be_r1", "ce_r1"), ("retrieved: BE", "reranked: BE + CE"), strict=True
    ):
        for number, (run, folders) in enumerate(runs.items()):
            curves = [_dev_recalls(folder, name) for folder in folders]
            # Seeds of one recipe are measured at the same rounds.
            points = [(at[0][0], fmean(y for _, y in at)) for at in zip(*curves, strict=True)]
            if points:
                # The same colour in both panels, though the second lacks some runs.
                label = run.replace("_", " ")
                axes.plot(*zip(*points, strict=True), ".-", label=label, color=f"C{number}")
        axes.set_title(title, fontsize=10, loc="left")
        _finish(axes, "rounds", "dev R@1, %" if axes is panels[0] else "")
    figure.savefig(path, dpi=120)


def plot_sample_efficiency(reports: Mapping[int, Sequence[Report]], path: Path, k: int) -> None:
    """Plots R@1 against the number of training pictures, averaged over the seeds.

    `reports` are by the number of pictures, one per seed. Each direction has a dashed line for BE
    and a solid one with `k` reranked. Bars span the lowest to the highest seed.
    """
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
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
    _finish(axes, "pictures trained on", "R@1, %")
    figure.savefig(path, dpi=150)


def _dev_recalls(folder: Path, name: str) -> list[tuple[float, float]]:
    """Returns round and recall of the measurements that reranked what the BE retrieved."""
    recalls = [
        (line["round"], line["dev_recall_percent"])
        for line in read_curve(folder)
        if "dev_recall_percent" in line
    ]
    return [
        (float(round_number), each[name])
        for round_number, each in recalls
        if each["be_r1"] is not None and each[name] is not None
    ]


def _finish(axes: Axes, x_name: str, y_name: str) -> None:
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    axes.set_ylim(0, 103)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    # Matplotlib's own search for a free corner warns when it takes over a second.
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="lower right")
