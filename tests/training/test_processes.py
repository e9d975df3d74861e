"""Two processes train what one trains: the same losses, round by round, written once."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tandem.local.free_ports import free_ports
from tandem.training.processes import ALONE, Processes
from tandem.training.runs.loss_curve import read_curve
from tandem.training.sources.scene_source import SceneSource
from tandem.training.train import train
from tests.support.training.run_of_several import LEFT_OUT, RECIPE, WHOLE

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("processes")

# The two runs add the same float32 numbers in another order.
TOLERANCE = 1e-4

RUNS = "tests.support.training.run_of_several"

Curve = list[dict[str, float]]


def free_port() -> int:
    [port] = free_ports(1)
    return port


@dataclass(frozen=True, slots=True)
class Pair:
    folder: Path
    told: str


def by_two_processes(command: list[str], *arguments: str, folder: Path) -> Pair:
    ran = subprocess.run(
        [sys.executable, *command, "-m", RUNS, str(folder), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return Pair(folder, ran.stdout)


@pytest.fixture(name="pair", scope="module")
def _pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return by_two_processes([], str(free_port()), WHOLE, folder=tmp_path_factory.mktemp("pair"))


@pytest.fixture(name="bent", scope="module")
def _bent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs by two processes without each of LEFT_OUT, started as the documentation says."""
    place = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *place]
    return by_two_processes(torchrun, *LEFT_OUT, folder=tmp_path_factory.mktemp("bent")).folder


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


@pytest.fixture(name="alone", scope="module")
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Curve:
    """The losses of one process, whose batches are twice as large as a part of two."""
    folder = tmp_path_factory.mktemp("alone")
    train(RECIPE, SceneSource(), folder, lambda *_: None)
    return losses(folder)


def test_two_processes_follow_the_curve_of_one(pair: Pair, alone: Curve) -> None:
    together = losses(pair.folder / WHOLE / "rank-0")
    assert len(together) == 5
    assert together[-1].keys() == {"be_loss", "mlm_loss", "ce_loss", "ance_loss"}
    assert difference(together, alone) <= TOLERANCE
    # Positive control of the tolerance: one round later the losses are others.
    assert difference(together[:2], alone[1:3]) > 10 * TOLERANCE

    # Only the first wrote and reported.
    assert (pair.folder / WHOLE / "rank-0" / "model.safetensors").is_file()
    assert not (pair.folder / WHOLE / "rank-1").exists()
    assert pair.told.count(f"{WHOLE} done 1 1") == 1


# What is left out fails the test above too, whose own control shows that it would.
@pytest.mark.slow
@pytest.mark.parametrize("left_out", LEFT_OUT)
def test_each_step_that_two_processes_omit_changes_their_curve(
    bent: Path, alone: Curve, left_out: str
) -> None:
    assert difference(losses(bent / left_out / "rank-0"), alone) > TOLERANCE


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
