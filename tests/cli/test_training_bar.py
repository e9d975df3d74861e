"""What is seen of a training run: a line a stage without a terminal, and every dev recall."""

import io

from tandem.cli.terminal.console import Terminal
from tandem.cli.terminal.progress import LongWork
from tandem.cli.train.train import TrainingBar
from tandem.lab.training.runs.run import NOTE_STAGE


def test_stages_and_dev_recalls_are_lines_without_a_terminal() -> None:
    """The last recall stays on the line with the losses of the rounds after it."""
    now = [0.0]
    terminal, shown = Terminal(), io.StringIO()
    terminal.file = shown

    with LongWork(terminal, clock=lambda: now[0]) as work:
        bar = TrainingBar(work, clock=lambda: now[0])
        work.say("trains tiny")
        bar.show(NOTE_STAGE, 0, 0, "2 of 9 pictures are one")
        bar.show("image tokens", 0, 64, "")
        bar.show("image tokens", 64, 64, "")
        bar.show("encoder", 0, 40, "")
        now[0] = 8.0
        bar.show("encoder", 20, 40, "dev BE R@1 57.4")
        now[0] = 16.0
        bar.show("encoder", 40, 40, "BE loss 0.200")

    lines = shown.getvalue().splitlines()
    assert lines[0] == "trains tiny"
    assert lines[1] == "2 of 9 pictures are one"
    assert lines[2].startswith("image tokens: begins")
    assert any(line.startswith("image tokens: ends") and "64 pictures" in line for line in lines)
    assert "       8 s  encoder step 20: dev BE R@1 57.4" in lines
    assert lines[-1].startswith("encoder: ends after 16 s, 40 rounds")
    assert "BE loss 0.200, dev BE R@1 57.4" in lines[-1]
