"""The pictures of train_grid."""

from pathlib import Path

from benchmarks.support.grid_plots import plot_dev_recalls, plot_sample_efficiency
from tests.support.evaluation.made_report import ink, report
from tests.support.training.drawn_curves import colours, write_curve


def test_runs_are_drawn_next_to_each_other(tmp_path: Path) -> None:
    """A line each in every panel that it has figures for."""
    for name in ("joint-1", "joint-2"):
        write_curve(tmp_path / name, with_ce=True)
    write_curve(tmp_path / "be-1", with_ce=False)
    joint = [tmp_path / "joint-1", tmp_path / "joint-2"]

    plot_dev_recalls({"joint": joint}, tmp_path / "one.png")
    plot_dev_recalls({"joint": joint, "bi_encoder": [tmp_path / "be-1"]}, tmp_path / "two.png")

    assert colours(tmp_path / "two.png") > colours(tmp_path / "one.png") > 1


def test_sample_efficiency_has_error_bars_with_several_seeds(tmp_path: Path) -> None:
    """Two lines a direction; several seeds that differ have more ink than one of their mean."""
    many, one = tmp_path / "many.png", tmp_path / "one.png"
    better, worse = report((1, 1, 1, 1)), report((2, 2, 2, 2))

    plot_sample_efficiency({1_000: [better, worse], 4_000: [better, worse]}, many, k=20)
    plot_sample_efficiency(
        {1_000: [report((1, 1, 2, 2))], 4_000: [report((1, 1, 2, 2))]}, one, k=20
    )

    assert ink(many) > ink(one) > 0
