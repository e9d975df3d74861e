"""The list of runs: what is on disk after each change, and what another command is refused."""

import json
from pathlib import Path

import pytest

from tandem.lab.training.runs.run_manifest import FILE_NAME, ListedRun, RunManifest, RunPhase

SETTINGS = {"options": ["--rounds", "2"], "test": ["scenes"]}


def opened(folder: Path, *seeds: int) -> RunManifest:
    """Returns the folder's list with these seeds of one recipe."""
    return RunManifest.opened(folder, SETTINGS, [ListedRun("tiny", seed) for seed in seeds])


def test_every_change_is_there_after_a_restart(tmp_path: Path) -> None:
    """State, cost and result, as the next process reads them; new seeds wait."""
    first = opened(tmp_path, 1, 2)
    run = first.change(first.run("tiny", 1), phase=RunPhase.TRAINING, core_seconds=3.5)

    interrupted = opened(tmp_path, 1, 2, 3).run("tiny", 1)
    first.change(run, phase=RunPhase.DONE, result={"R@1": 50.0})
    again = opened(tmp_path, 1, 2, 3)

    assert (interrupted.phase, interrupted.core_seconds) == (RunPhase.TRAINING, 3.5)
    assert again.run("tiny", 1) == ListedRun("tiny", 1, RunPhase.DONE, 3.5, {"R@1": 50.0})
    assert again.run("tiny", 3).phase is RunPhase.WAITING
    with pytest.raises(KeyError):
        again.run("tiny", 4)


def test_runs_with_other_options_are_not_mixed(tmp_path: Path) -> None:
    """Named, and the list stays as it was."""
    opened(tmp_path, 1)
    before = (tmp_path / FILE_NAME).read_text()

    with pytest.raises(ValueError, match="other options: options; give the same"):
        RunManifest.opened(tmp_path, SETTINGS | {"options": []}, [])

    assert (tmp_path / FILE_NAME).read_text() == before


def test_a_test_may_be_corrected_until_a_run_is_measured(tmp_path: Path) -> None:
    """A mistyped one fails after hours of training, which count all the same."""
    first = opened(tmp_path, 1, 2)
    for seed in (1, 2):
        first.change(first.run("tiny", seed), phase=RunPhase.FAILED, core_seconds=9.0)

    again = RunManifest.opened(tmp_path, SETTINGS | {"test": ["emoji"]}, [])

    assert again.run("tiny", 2).core_seconds == 9.0
    assert json.loads((tmp_path / FILE_NAME).read_text())["settings"]["test"] == ["emoji"]
    again.change(again.run("tiny", 1), phase=RunPhase.DONE)
    with pytest.raises(ValueError, match="other options: test; give the same"):
        opened(tmp_path, 1)


@pytest.mark.parametrize("content", ["", "[]", '{"settings": {}, "runs": [{"recipe": "a"}]}'])
def test_a_damaged_list_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)

    with pytest.raises(ValueError, match=FILE_NAME):
        opened(tmp_path, 1)
