"""Keeps a list of training runs with state, cost and result, so that a queue survives a restart."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from tandem.platform.files.json_object import read_object
from tandem.platform.files.whole_file import write_text_whole

FILE_NAME: Final = "runs.json"
TEST: Final = "test"
"""The setting that says how trained runs are measured."""


class RunPhase(StrEnum):
    WAITING = "waiting"
    TRAINING = "training"
    MEASURING = "measuring"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ListedRun:
    recipe: str
    seed: int
    phase: RunPhase = RunPhase.WAITING
    core_seconds: float = 0.0
    """Processor time of its training and measurement, over all tries, as last noted."""
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        return self.recipe, self.seed


@dataclass(slots=True)
class RunManifest:
    """Lists the runs of one folder; each change is on disk before the next begins."""

    path: Path
    settings: dict[str, Any]
    """Options that all runs share."""
    runs: dict[tuple[str, int], ListedRun]
    """By recipe and seed."""

    @classmethod
    def opened(cls, folder: Path, settings: dict[str, Any], runs: Sequence[ListedRun]) -> Self:
        """Returns the folder's list with these runs added, or a new one.

        Raises ValueError for one made with other settings: its runs would be compared with these.
        What they are tested by may change until one of them is measured.
        """
        path = folder / FILE_NAME
        manifest = cls(path, settings, {})
        for each in (*(_listed(path, settings) if path.is_file() else ()), *runs):
            manifest.runs.setdefault(each.key, each)
        manifest._write()
        return manifest

    def run(self, recipe: str, seed: int) -> ListedRun:
        return self.runs[recipe, seed]

    def change(self, run: ListedRun, **changes: Any) -> ListedRun:  # noqa: ANN401
        self.runs[run.key] = replace(run, **changes)
        self._write()
        return self.runs[run.key]

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        runs = [asdict(each) for each in self.runs.values()]
        content = {"settings": self.settings, "runs": runs}
        write_text_whole(self.path, json.dumps(content, indent=1) + "\n")


def _listed(path: Path, settings: dict[str, Any]) -> list[ListedRun]:
    try:
        content = read_object(path)
        listed = [
            ListedRun(**each | {"phase": RunPhase(each["phase"])}) for each in content["runs"]
        ]
        earlier = dict(content["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; restore it, or remove it") from error
    is_measured = any(each.phase is RunPhase.DONE for each in listed)
    if differing := sorted(
        name
        for name in {*earlier, *settings}
        if earlier.get(name) != settings.get(name) and (is_measured or name != TEST)
    ):
        raise ValueError(
            f"{path} lists runs with other options: {', '.join(differing)}; give the same "
            "options, or choose another --folder"
        )
    return listed
