"""`tandem train neighbours`: from two files of lists to a folder of networks."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.lab.neighbours.leaprr.training_folder import LeaprrFolder
from tandem.lab.neighbours.lists.neighbour_file import save_neighbours
from tests.support.neighbours.planted_corpus import planted_neighbours

SMALL = [
    "--set=width=8",
    "--set=head_count=2",
    "--set=pillar_count=4",
    "--set=image_query_neighbours=5",
    "--set=text_query_neighbours=4",
    "--set=fixed_threshold_nodes=none",
    "--set=batch_size=10",
    "--epochs=1",
]


@pytest.fixture(name="lists")
def _lists(tmp_path: Path) -> tuple[Path, Path]:
    """Lists of train and of dev."""
    paths = tmp_path / "train.neighbours", tmp_path / "dev.neighbours"
    for seed, path in enumerate(paths):
        save_neighbours(path, planted_neighbours(seed, image_count=10, depth=10))
    return paths


def run(train: Path, dev: Path, folder: Path, *arguments: str) -> tuple[int, str]:
    """Returns the exit status, and what was printed with the error."""
    words = ["train", "neighbours", str(train), "--dev", str(dev), "--folder", str(folder)]
    result = CliRunner().invoke(app, [*words, *SMALL, *arguments])
    return result.exit_code, result.output + str(result.exception or "")


def test_each_seed_has_a_folder_and_a_stopped_run_continues(
    lists: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "leaprr"
    status, printed = run(*lists, folder, "--seeds", "2", "--set", "margin=0.3")
    assert status == 0, printed
    model, training = LeaprrFolder(folder / "seed_2").read()
    assert (model.config.margin, training.plan.seed) == (0.3, 2)
    before = (folder / "seed_1" / "leaprr.safetensors").stat().st_mtime_ns

    status, printed = run(*lists, folder, "--seeds", "2")
    assert status == 1
    assert "seed_1 holds trained networks" in printed
    status, printed = run(*lists, folder, "--seeds", "3", "--set", "margin=0.3", "--resume")

    assert status == 0, printed
    assert LeaprrFolder(folder / "seed_3").read()[1].plan.seed == 3
    assert (folder / "seed_1" / "leaprr.safetensors").stat().st_mtime_ns == before


def test_another_recipe_is_still_trained_by_train() -> None:
    result = CliRunner().invoke(app, ["train", "neighbour"])

    assert result.exit_code == 1
    assert "no recipe 'neighbour'" in str(result.exception)
