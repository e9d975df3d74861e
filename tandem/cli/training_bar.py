"""What a person sees of a training run: a bar a stage, with its rate and the last dev recall."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn


class StageRate:
    """Steps a second since the first step seen: a run that goes on begins in the middle."""

    def __init__(self, step: int, step_count: int, seconds: float) -> None:
        self._first, self._start_seconds = step, seconds
        self._step, self._seconds = step, seconds
        self._step_count = step_count

    def see(self, step: int, seconds: float) -> None:
        """Takes the step reached and the time of it."""
        self._step, self._seconds = step, seconds

    def __str__(self) -> str:
        """Returns such as "1.25/s, 0:12:30 left"; nothing before a second step was seen."""
        span_seconds = self._seconds - self._start_seconds
        if self._step == self._first or span_seconds <= 0:
            return ""
        rate = (self._step - self._first) / span_seconds
        left_seconds = round((self._step_count - self._step) / rate)
        minutes, seconds = divmod(left_seconds, 60)
        return f"{rate:.2f}/s, {minutes // 60}:{minutes % 60:02}:{seconds:02} left"


class TrainingBar:
    """Shows progress; `show` is what a run calls."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._bar = Progress(
            TextColumn("{task.description:12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._clock, self._start_seconds = clock, clock()
        self._tasks: dict[str, TaskID] = {}
        self._rates: dict[str, StageRate] = {}
        self._dev = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, stage: str, step: int, step_count: int, note: str) -> None:
        """Takes how far a stage is; a note that begins with "dev" stays in sight from then on."""
        seconds = self._clock()
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=step_count, rate="", note="")
            self._rates[stage] = StageRate(step, step_count, seconds)
        self._rates[stage].see(step, seconds)
        if note.startswith("dev "):
            self._dev = note
            elapsed_seconds = seconds - self._start_seconds
            self._bar.console.print(f"{elapsed_seconds:8.0f} s  {stage} step {step:,}: {note}")
            shown = note
        else:
            shown = ", ".join(filter(None, [note, self._dev]))
        self._bar.update(
            self._tasks[stage], completed=step, rate=str(self._rates[stage]), note=shown
        )
