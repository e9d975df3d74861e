"""`tandem models swap`, as typed, where no server has the repository."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.model_io.repository.model_version import Serving, wanted, write_serving
from tandem.model_io.repository.swap_attendance import SwapAttendance


@pytest.fixture(name="repository")
def _repository(tiny_repository: Path, tmp_path: Path) -> Path:
    """A copy, for a test to change."""
    return shutil.copytree(tiny_repository, tmp_path / "repository")


def swap(repository: Path, *words: str) -> tuple[int, str]:
    """Returns the exit status and what was said."""
    command = ["models", "swap", "--model-repository", str(repository), *words]
    result = CliRunner().invoke(app, command)
    return result.exit_code, f"{result.output}{result.exception or ''}"


def test_a_swap_that_no_process_performs_is_withdrawn(repository: Path) -> None:
    """Or a Tandem that is started next week would make it."""
    attendance = SwapAttendance(repository)  # of one that hangs
    attendance.record_stage("version 1: Triton loads it")
    status, output = swap(repository, "--to", "1", "--wait-seconds", "1")

    assert status == 1
    assert "version 1 was not taken within 1 s" in output
    assert output.count("version 1: Triton loads it") == 2  # as it was said, and at the end
    attendance.close()
    assert wanted(repository) is None


def test_a_swap_without_a_running_tandem_is_refused_at_once(repository: Path) -> None:
    SwapAttendance(repository).close()
    for words in (("--to", "1"), ("no-checkpoint",)):
        status, output = swap(repository, *words, "--wait-seconds", "600")

        assert status == 1
        assert f"no tandem up --swaps runs with {repository}" in output
    assert wanted(repository) is None


def test_a_damaged_version_file_stops_by_name(repository: Path) -> None:
    write_serving(repository, Serving(version=1))
    path = repository / "serving.json"
    path.write_text(path.read_text()[:-10])

    status, output = swap(repository, "--to", "1")

    assert status == 1
    assert "serving.json is damaged" in output
