"""The picture of a run."""

from pathlib import Path

import pytest
from PIL import Image

from tandem.training.runs.curve_plot import PLOT_NAME, plot_run
from tests.support.training.drawn_curves import colours, write_curve


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


def test_a_folder_without_a_curve_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"loss_curve\.jsonl"):
        plot_run(tmp_path)
