"""The loss curve: a line a round, none twice, none missing, and TensorBoard says the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tandem.lab.training.dev_recall import DevRecall
from tandem.lab.training.runs.loss_curve import (
    FILE_NAME,
    TENSORBOARD_FOLDER,
    LossCurve,
    LossCurveIncomplete,
)

RECALL = DevRecall(be_r1=40.0, be_r10=80.0, ce_r1=None)


def add(curve: LossCurve, number: int, recall: DevRecall | None = None) -> None:
    """Adds a round whose numbers follow from its own; exact in TensorBoard's float32."""
    losses = {"be": number / 4, "ce": number / 8}
    curve.add(number, losses, number / 2, 1.5 * number, recall)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE_NAME).read_text().splitlines()]


def write(folder: Path, numbers: range, done: int = 0) -> None:
    """Adds rounds to the curve of a run that has `done` rounds behind it."""
    curve = LossCurve(folder, done, seconds=1.5 * done)
    for number in numbers:
        add(curve, number)
    curve.close()


def tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Returns what TensorBoard would draw: (round, value) by name."""
    events = EventAccumulator(str(folder / TENSORBOARD_FOLDER))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_a_line_says_what_the_module_promises(tmp_path: Path) -> None:
    """Recalls only where they were measured; what was not trained is not there."""
    curve = LossCurve(tmp_path, 0, 0.0)
    add(curve, 1)
    curve.add(2, {"be": 0.5}, 0.25, 3.0, RECALL)
    curve.close()

    assert lines(tmp_path) == [
        {"round": 1, "be_loss": 0.25, "ce_loss": 0.125, "learning_rate": 0.5, "seconds": 1.5},
        {
            "round": 2,
            "be_loss": 0.5,
            "learning_rate": 0.25,
            "seconds": 3.0,
            "dev_recall_percent": {"be_r1": 40.0, "be_r10": 80.0, "ce_r1": None},
        },
    ]


def test_tensorboard_has_the_same_numbers(tmp_path: Path) -> None:
    curve = LossCurve(tmp_path, 0, 0.0)
    add(curve, 1)
    add(curve, 2, RECALL)
    curve.close()

    assert tensorboard(tmp_path) == {
        "be_loss": [(1, 0.25), (2, 0.5)],
        "ce_loss": [(1, 0.125), (2, 0.25)],
        "learning_rate": [(1, 0.5), (2, 1.0)],
        "dev_recall_percent/be_r1": [(2, 40.0)],
        "dev_recall_percent/be_r10": [(2, 80.0)],
    }


@pytest.mark.parametrize("torn", ["", '{"round": 8, "be_lo'])
def test_a_resumed_run_drops_rounds_after_its_state(tmp_path: Path, torn: str) -> None:
    """Killed in round 8 with a state of round 5: 6 and 7 come again, and once."""
    write(tmp_path, range(1, 8))
    with (tmp_path / FILE_NAME).open("a") as file:
        file.write(torn)

    write(tmp_path, range(6, 11), done=5)

    assert [line["round"] for line in lines(tmp_path)] == list(range(1, 11))
    assert tensorboard(tmp_path)["be_loss"] == [(number, number / 4) for number in range(1, 11)]


def test_a_new_run_begins_an_empty_curve(tmp_path: Path) -> None:
    """What another run left in the folder is not its beginning."""
    write(tmp_path, range(1, 8))

    write(tmp_path, range(1, 3))

    assert [line["round"] for line in lines(tmp_path)] == [1, 2]
    assert tensorboard(tmp_path)["be_loss"] == [(1, 0.25), (2, 0.5)]


@pytest.mark.parametrize("left", ["", '{"round": 1}\n{"round": 3}\n', "no\nJSON\n"])
def test_a_curve_with_missing_rounds_is_refused(tmp_path: Path, left: str) -> None:
    (tmp_path / FILE_NAME).write_text(left)

    with pytest.raises(LossCurveIncomplete, match=r"loss_curve\.jsonl lacks.*1 to 2.*restore it"):
        LossCurve(tmp_path, 2, 0.0)

    assert (tmp_path / FILE_NAME).read_text() == left
