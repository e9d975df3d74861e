"""`tandem models swap`, as typed, where nobody serves the repository."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.model_io.model_version import Serving, wanted, write_serving


@pytest.fixture(name="repository")
def _repository(tiny_repository: Path, tmp_path: Path) -> Path:
    """A copy, for a test to change."""
    return shutil.copytree(tiny_repository, tmp_path / "repository")


def swap(repository: Path, *words: str) -> tuple[int, str]:
    """Returns the exit status and what was said."""
    command = ["models", "swap", "--model-repository", str(repository), *words]
    result = CliRunner().invoke(app, command)
    return result.exit_code, f"{result.output}{result.exception or ''}"


def test_a_swap_that_nobody_makes_is_taken_back(repository: Path) -> None:
    """Or a Tandem that is started next week would make it."""
    status, output = swap(repository, "--to", "1", "--wait-seconds", "1")

    assert status == 1
    assert "nobody took version 1 within 1 s" in output
    assert "tandem up --swaps" in output
    assert wanted(repository) is None


def test_a_version_that_is_not_there_is_not_asked_for(repository: Path) -> None:
    """Nor is nothing, nor both ways at once."""
    assert "2 is not there" in swap(repository, "--to", "2")[1]
    assert "give a checkpoint, or --to a version" in swap(repository)[1]
    assert "give a checkpoint, or --to a version" in swap(repository, "folder", "--to", "1")[1]
    assert wanted(repository) is None


def test_a_damaged_word_of_what_serves_stops_by_name(repository: Path) -> None:
    """And not by a traceback."""
    write_serving(repository, Serving(version=1))
    path = repository / "joint_encoder" / "serving.json"
    path.write_text(path.read_text()[:-10])

    status, output = swap(repository, "--to", "1")

    assert status == 1
    assert "serving.json is damaged" in output
