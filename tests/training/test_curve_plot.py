"""The picture of a run."""

import json
from pathlib import Path

import pytest
from PIL import Image

from tandem.training.curve_plot import PLOT_NAME, plot_dev_recalls, plot_run
from tandem.training.loss_curve import FILE_NAME


def write_curve(folder: Path, *, with_ce: bool, round_count: int = 30) -> None:
    """Writes rounds, measured every ten."""
    folder.mkdir()
    lines = []
    for round_number in range(1, round_count + 1):
        line: dict[str, object] = {"round": round_number, "seconds": 2.0 * round_number}
        line["be_loss"] = 3.0 / round_number
        if with_ce:
            line["ce_loss"] = 0.7
        if round_number % 10 == 0:
            ce_r1 = 50.0 if with_ce else None
            line["dev_recall_percent"] = {"be_r1": 20.0, "be_r10": 80.0, "ce_r1": ce_r1}
        lines.append(json.dumps(line))
    (folder / FILE_NAME).write_text("\n".join(lines) + "\n")


def test_a_run_is_drawn_into_its_folder(tmp_path: Path) -> None:
    """A run without a CE draws less: nothing is drawn of what was not trained."""
    write_curve(tmp_path / "joint", with_ce=True)
    write_curve(tmp_path / "be", with_ce=False)

    joint, be = (plot_run(tmp_path / name) for name in ("joint", "be"))

    assert joint == tmp_path / "joint" / PLOT_NAME
    assert colours(joint) > colours(be) > 1


def test_the_losses_of_a_short_run_are_seen(tmp_path: Path) -> None:
    """Of less than ten rounds there is one point each, and no line between points."""
    write_curve(tmp_path / "short", with_ce=True, round_count=9)

    with Image.open(plot_run(tmp_path / "short")) as image:
        # Of the left panel what lies below its legend.
        width, height = image.size
        panel = image.convert("HSV").crop((width // 12, height // 3, width // 2, height))
    assert sum(panel.getchannel("S").histogram()[128:]) > 10


def test_runs_are_drawn_next_to_each_other(tmp_path: Path) -> None:
    """A line each in every panel that it has figures for."""
    for name in ("joint-1", "joint-2"):
        write_curve(tmp_path / name, with_ce=True)
    write_curve(tmp_path / "be-1", with_ce=False)
    joint = [tmp_path / "joint-1", tmp_path / "joint-2"]

    plot_dev_recalls({"joint": joint}, tmp_path / "one.png")
    plot_dev_recalls({"joint": joint, "bi_encoder": [tmp_path / "be-1"]}, tmp_path / "two.png")

    assert colours(tmp_path / "two.png") > colours(tmp_path / "one.png") > 1


def test_a_folder_without_a_curve_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"loss_curve\.jsonl"):
        plot_run(tmp_path)


def colours(path: Path) -> int:
    """Returns how many strong colours lines are drawn in."""
    with Image.open(path) as image:
        counted = image.convert("RGB").getcolors(2**20) or []
    return sum(count > 50 and max(colour) - min(colour) > 100 for count, colour in counted)  # type: ignore[arg-type]
