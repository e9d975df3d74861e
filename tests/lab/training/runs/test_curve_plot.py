"""The picture of a run."""

from pathlib import Path

from tandem.lab.training.runs.loss_curve import PLOT_NAME, plot_run
from tests.support.training.drawn_curves import colours, write_curve


def test_a_run_is_drawn_into_its_folder(tmp_path: Path) -> None:
    """A run without a CE draws less: nothing is drawn of what was not trained."""
    write_curve(tmp_path / "joint", with_ce=True)
    write_curve(tmp_path / "be", with_ce=False)

    joint, be = (plot_run(tmp_path / name) for name in ("joint", "be"))

    assert joint == tmp_path / "joint" / PLOT_NAME
    assert colours(joint) > colours(be) > 1
