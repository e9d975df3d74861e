"""Writes a run's losses: one line of JSON per round, the same for TensorBoard, and a plot.

    {"round": 150, "be_loss": 2.1, "ce_loss": 0.61, "learning_rate": 0.00047, "seconds": 181.3,
     "dev_recall_percent": {"be_r1": 41.2, "be_r10": 88.0, "ce_r1": 44.6}}

A loss is the mean over the round's steps and is absent where the round had no such step. Seconds
exclude the time between a stop and a resume. Recalls are present where they were measured.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch.utils.tensorboard import SummaryWriter

from tandem.lab.training.dev_recall import DevRecall

FILE_NAME = "loss_curve.jsonl"
PLOT_NAME: Final = "loss_curve.png"

_LOSSES: Final = {"be_loss": "BE", "ce_loss": "CE", "ance_loss": "ANCE", "mlm_loss": "MLM"}
_RECALLS: Final = {"be_r10": "BE R@10", "be_r1": "BE R@1", "ce_r1": "BE + CE R@1"}
# Rounds averaged into one point: single rounds are too noisy to show the trend.
_WINDOW: Final = 10
TENSORBOARD_FOLDER = "tensorboard"


class LossCurveIncomplete(ValueError):
    """A run resumes from a round that its curve does not reach."""


class LossCurve:
    """Appends to a run's curve on disk; a resumed run drops the rounds after its last state."""

    def __init__(self, folder: Path, done_round_count: int, seconds: float) -> None:
        """Keeps the first `done_round_count` rounds of a curve; `seconds` is the run's time so far.

        Raises LossCurveIncomplete if one of these rounds is missing.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        lines = _lines(path, done_round_count) if done_round_count else []
        beside = path.with_suffix(".new")
        beside.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        beside.replace(path)
        self._file = path.open("a", encoding="utf-8")
        self._tensorboard = _Tensorboard(folder / TENSORBOARD_FOLDER, lines, seconds)

    def add(
        self,
        round_number: int,
        losses: Mapping[str, float],
        learning_rate: float,
        seconds: float,
        recall: DevRecall | None,
    ) -> None:
        """Returns once the round is on disk, which it must be before its state is kept.

        `losses` are by use: "be", "mlm", "ce", "ance".
        """
        line: dict[str, Any] = {"round": round_number}
        line |= {f"{use}_loss": loss for use, loss in losses.items()}
        line |= {"learning_rate": learning_rate, "seconds": round(seconds, 3)}
        if recall:
            line["dev_recall_percent"] = recall.to_dict()
        self._file.write(f"{json.dumps(line)}\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._tensorboard.add(line)

    def close(self) -> None:
        self._file.close()
        self._tensorboard.close()


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of a run's curve; raises OSError where there is none."""
    text = (folder / FILE_NAME).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def rounds_in_curve(folder: Path) -> int:
    """Returns how many rounds a run's curve has; 0 where there is none."""
    path = folder / FILE_NAME
    # A line that a kill cut short has no newline.
    return path.read_text(encoding="utf-8").count("\n") if path.is_file() else 0


class _Tensorboard:
    """Writes TensorBoard's files, again from the curve after a resume, so that they agree."""

    def __init__(self, folder: Path, lines: list[dict[str, Any]], seconds: float) -> None:
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._start_time = time.time() - seconds
        self._writer = SummaryWriter(str(folder))
        for line in lines:
            self.add(line)

    def add(self, line: dict[str, Any]) -> None:
        values = {name: value for name, value in line.items() if name.endswith("_loss")}
        values["learning_rate"] = line["learning_rate"]
        for name, percent in line.get("dev_recall_percent", {}).items():
            if percent is not None:
                values[f"dev_recall_percent/{name}"] = percent
        for name, value in values.items():
            self._writer.add_scalar(
                name, value, line["round"], walltime=self._start_time + line["seconds"]
            )

    def close(self) -> None:
        self._writer.close()


def _lines(path: Path, count: int) -> list[dict[str, Any]]:
    """Returns the lines of the first `count` rounds; a kill may have cut the file's last line."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    kept = text.split("\n")[:-1][:count]
    try:
        lines = [json.loads(line) for line in kept]
        is_whole = [line["round"] for line in lines] == list(range(1, count + 1))
    except (ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise LossCurveIncomplete(
            f"{path} lacks some of the rounds 1 to {count} that the run has done; restore it, or "
            "delete run_state.pt next to it to start over"
        )
    return lines


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
