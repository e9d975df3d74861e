"""Shows the progress of a training run: one stage after another, and each dev recall on a line."""

import time
from collections.abc import Callable

from tandem.cli.terminal.progress import LongWork
from tandem.lab.training.runs.run import NOTE_STAGE

_UNITS = {
    "encoder": "rounds",
    "zoo": "rounds",
    "backbone": "steps",
    "matcher": "steps",
    "done": "",
}


class TrainingBar:
    """Shows progress in an open `work`; a run calls `show`."""

    def __init__(self, work: LongWork, clock: Callable[[], float] = time.monotonic) -> None:
        self._work = work
        self._clock, self._start_seconds = clock, clock()
        self._dev = ""

    def show(self, stage: str, step: int, step_count: int, note: str) -> None:
        """Shows how far a stage is; a note that begins with "dev" stays visible from then on.

        A note of the stage NOTE_STAGE is a line of its own.
        """
        if stage == NOTE_STAGE:
            self._work.say(note)
            return
        shown = ", ".join(filter(None, [note, self._dev]))
        if note.startswith("dev "):
            self._dev = shown = note
            elapsed_seconds = self._clock() - self._start_seconds
            self._work.say(f"{elapsed_seconds:8.0f} s  {stage} step {step:,}: {note}")
        unit = _UNITS.get(stage, "pictures")
        self._work.show(stage, step, step_count, unit=unit, note=shown)
