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
    runs: list[ListedRun]

    @classmethod
    def opened(cls, folder: Path, settings: dict[str, Any], runs: Sequence[ListedRun]) -> Self:
        """Returns the folder's list with these runs added, or a new one.

        Raises ValueError for one made with other settings: its runs would be compared with these.
        What they are tested by may change until one of them is measured.
        """
        path = folder / FILE_NAME
        if not path.is_file():
            manifest = cls(path, settings, list(runs))
            manifest._write()
            return manifest
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
        known = {each.key for each in listed}
        manifest = cls(path, settings, [*listed, *(run for run in runs if run.key not in known)])
        manifest._write()
        return manifest

    def run(self, recipe: str, seed: int) -> ListedRun:
        return self.runs[self._place((recipe, seed))]

    def change(self, run: ListedRun, **changes: Any) -> ListedRun:  # noqa: ANN401
        changed = replace(run, **changes)
        self.runs[self._place(run.key)] = changed
        self._write()
        return changed

    def _place(self, key: tuple[str, int]) -> int:
        for place, each in enumerate(self.runs):
            if each.key == key:
                return place
        raise KeyError(f"{self.path} has no run {key}")

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {"settings": self.settings, "runs": [asdict(each) for each in self.runs]}
        write_text_whole(self.path, json.dumps(content, indent=1) + "\n")
