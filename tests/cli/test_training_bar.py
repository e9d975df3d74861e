"""The training bar: rate and time left by hand, and the dev recall that stays in sight."""

import io

from rich.console import Console

from tandem.cli.training_bar import StageRate, TrainingBar


def test_the_rate_counts_from_the_first_step_seen() -> None:
    """20 rounds in 16 s are 1.25/s; 1,000 - 120 = 880 more take 704 s, 11 min 44 s.

    Counted from 0 it would say 7.5/s: a run that goes on has its first 100 rounds behind it.
    """
    rate = StageRate(step=100, step_count=1_000, seconds=50.0)
    rate.see(120, 66.0)

    assert str(rate) == "1.25/s, 0:11:44 left"


def test_there_is_no_rate_before_a_second_step() -> None:
    """Nothing is divided by no time."""
    rate = StageRate(step=10, step_count=20, seconds=5.0)

    assert str(rate) == ""


def test_the_last_dev_recall_stays_in_sight() -> None:
    """Beside the losses of the rounds after it, with the rate: 10 rounds in 8 s."""
    seconds = iter([0.0, 100.0, 108.0, 116.0])
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=200, highlight=False)

    with TrainingBar(console, clock=lambda: next(seconds)) as bar:
        bar.show("encoder", 10, 40, "BE loss 0.300")
        bar.show("encoder", 20, 40, "dev BE R@1 57.4")
        bar.show("encoder", 30, 40, "BE loss 0.200")

    text = shown.getvalue()
    assert "108 s  encoder step 20: dev BE R@1 57.4" in text
    last_line = text.splitlines()[-2]  # behind it the cursor is shown again
    for part in ("30/40", "1.25/s, 0:00:08 left", "BE loss 0.200, dev BE R@1 57.4"):
        assert part in last_line
