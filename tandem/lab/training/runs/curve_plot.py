"""Plots a run's losses and dev recalls."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tandem.lab.training.runs.loss_curve import read_curve

PLOT_NAME: Final = "loss_curve.png"

_LOSSES: Final = {"be_loss": "BE", "ce_loss": "CE", "ance_loss": "ANCE", "mlm_loss": "MLM"}
_RECALLS: Final = {"be_r10": "BE R@10", "be_r1": "BE R@1", "ce_r1": "BE + CE R@1"}
# Rounds averaged into one point: single rounds are too noisy to show the trend.
_WINDOW: Final = 10


def plot_run(folder: Path) -> Path:
    lines = read_curve(folder)
    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    losses, recalls = figure.subplots(1, 2)
    for name, label in _LOSSES.items():
        _draw(losses, _smoothed([line for line in lines if name in line], name), label)
    measured = [line for line in lines if "dev_recall_percent" in line]
    for name, label in _RECALLS.items():
        points = [(line["seconds"] / 60, line["dev_recall_percent"][name]) for line in measured]
        _draw(recalls, [(x, y) for x, y in points if y is not None], label, marker=".")
    _finish(losses, "loss", f"loss, mean of {_WINDOW} rounds", legend_at="upper right")
    _finish(recalls, "dev recall, %", "recall on dev", legend_at="lower right")
    recalls.set_ylim(0, 103)
    path = folder / PLOT_NAME
    figure.savefig(path, dpi=120)
    return path


def _smoothed(lines: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    windows = (lines[start : start + _WINDOW] for start in range(0, len(lines), _WINDOW))
    return [
        (window[-1]["seconds"] / 60, sum(line[name] for line in window) / len(window))
        for window in windows
    ]


def _draw(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    label: str,
    marker: str | None = None,
) -> None:
    if points:
        x, y = zip(*points, strict=True)
        # A single point, as in a short run, makes no visible line; a marker shows it.
        axes.plot(x, y, label=label, marker=marker or ("." if len(x) == 1 else None))


def _finish(
    axes: Axes, y_name: str, title: str, legend_at: Literal["upper right", "lower right"]
) -> None:
    """Labels the axes; the legend's corner is one that the curves leave free."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("minutes since the run began")
    axes.set_ylabel(y_name)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        # Matplotlib's own search for a free corner warns when it takes over a second.
        axes.legend(frameon=False, loc=legend_at)
