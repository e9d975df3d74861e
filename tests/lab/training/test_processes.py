"""Two processes train what one trains: the same losses, round by round, written once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tandem.lab.training.processes import ALONE, Processes
from tandem.lab.training.runs.loss_curve import read_curve
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.train import train
from tandem.stack.free_ports import free_ports
from tests.support.training.run_of_several import RECIPE

# The two runs add the same float32 numbers in another order.
TOLERANCE = 1e-4

RUN = "tests.support.training.run_of_several"

Curve = list[dict[str, float]]


def losses(folder: Path) -> Curve:
    lines = read_curve(folder)
    return [{name: line[name] for name in line if name.endswith("_loss")} for line in lines]


def difference(one: Curve, other: Curve) -> float:
    """Returns the largest difference between the losses of two runs."""
    assert [line.keys() for line in one] == [line.keys() for line in other]
    return max(
        abs(line[name] - fellow[name])
        for line, fellow in zip(one, other, strict=True)
        for name in line
    )


def test_two_processes_follow_the_curve_of_one(tmp_path: Path) -> None:
    """All five rounds, BE by softmax and by triplet, MLM, CE, and ANCE after the first mining."""
    [port] = free_ports(1)
    told = subprocess.run(
        [sys.executable, "-m", RUN, str(tmp_path), str(port)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    train(RECIPE, SceneSource(), tmp_path / "alone", lambda *_: None)

    together, alone = losses(tmp_path / "rank-0"), losses(tmp_path / "alone")
    assert len(together) == 5
    assert together[-1].keys() == {"be_loss", "mlm_loss", "ce_loss", "ance_loss"}
    assert difference(together, alone) <= TOLERANCE
    # Positive control of the tolerance: one round later the losses are others.
    assert difference(together[:2], alone[1:3]) > 10 * TOLERANCE

    # Only the first wrote and reported.
    assert (tmp_path / "rank-0" / "model.safetensors").is_file()
    assert not (tmp_path / "rank-1").exists()
    assert told.count("done 1 1") == 1


def test_each_process_gets_its_own_rows() -> None:
    rows = torch.arange(6)

    parts = [Processes(rank, 3).part(rows).tolist() for rank in range(3)]

    assert parts == [[0, 1], [2, 3], [4, 5]]


def test_one_process_equals_a_run_without_processes() -> None:
    """Nothing is copied, and nothing waits for others."""
    rows = torch.arange(6)

    assert torch.equal(ALONE.part(rows), rows)
    assert ALONE.gathered(rows) is rows
    assert ALONE.shared(3, lambda number: number * 2) == [0, 2, 4]
    assert ALONE.mean(0.5) == 0.5


def test_a_recipe_that_the_processes_cannot_divide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch of 16 rows, which 3 processes cannot divide"):
        train(RECIPE, SceneSource(), tmp_path, lambda *_: None, processes=Processes(0, 3))
