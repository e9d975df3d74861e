"""Shows the progress of long work on stderr: bars on a terminal, otherwise lines."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from tandem.cli.terminal.console import Terminal, errors, one_line

_LINE_SECONDS = 60.0


@dataclass(slots=True)
class _Stage:
    name: str
    unit: str
    first: int
    start_seconds: float
    done: int
    total: int | None
    note: str = ""

    def state(self, now_seconds: float) -> str:
        """Returns such as "1,200 of 4,000 items, 31.2/s, 1 min 30 s left"."""
        of_total = "" if self.total is None else f" of {self.total:,}"
        spent_seconds = now_seconds - self.start_seconds
        parts = [f"{self.done:,}{of_total} {self.unit}".rstrip()]
        if not self.done and self.total is None:
            parts = [f"for {duration(spent_seconds)}"]
        rate = (self.done - self.first) / spent_seconds if spent_seconds > 0 else 0.0
        if rate > 0:
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2f}/s")
            if self.total is not None and self.done < self.total:
                parts.append(f"{duration((self.total - self.done) / rate)} left")
        return ", ".join(filter(None, [*parts, self.note]))


class LongWork:
    """Shows progress stage by stage. Use it in a with statement.

    A terminal shows one bar a stage. Otherwise it prints a line when a stage starts, one a minute,
    and one when the stage ends.
    """

    def __init__(
        self,
        terminal: Terminal = errors,
        clock: Callable[[], float] = time.monotonic,
        line_seconds: float = _LINE_SECONDS,
        *,
        often_short: bool = False,
    ) -> None:
        """`often_short` work prints nothing in its first minute, except on a terminal."""
        self._is_telling = not often_short
        self._terminal, self._clock, self._line_seconds = terminal, clock, line_seconds
        self._stage: _Stage | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._stages: dict[str, _Stage] = {}

    def show(
        self,
        stage: str,
        done: int,
        total: int | None = None,
        *,
        unit: str = "",
        note: str = "",
    ) -> None:
        """Updates a stage; its first call starts it and ends the previous one.

        Call it with 0, or with the resumed position, before a stage's work starts.
        """
        now_seconds = self._clock()
        with self._lock:
            known = self._stages.get(stage)
            if known is None:
                self._finish(now_seconds)
                known = _Stage(stage, unit, done, now_seconds, done, total)
                self._stages[stage] = known
                self._begin(known)
            self._stage = known
            known.done, known.note = done, note
            if total is not None:
                known.total = total
            if self._bars is not None:
                self._bars.update(
                    self._tasks[stage],
                    completed=done,
                    total=known.total,
                    state=known.state(now_seconds),
                )

    def say(self, line: str) -> None:
        """Prints a line above the bars."""
        (self._bars.console if self._bars is not None else self._terminal).print(line)

    def __enter__(self) -> Self:
        if self._terminal.is_live:
            self._bars = Progress(
                _LiteralColumn("{task.description}"),
                BarColumn(bar_width=20),
                _LiteralColumn("{task.fields[state]}"),
                console=self._terminal,
            )
            self._bars.start()
        else:
            self._ticker = threading.Thread(target=self._tick, name="long-work", daemon=True)
            self._ticker.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        if error is None:
            with self._lock:
                self._finish(self._clock())
        if self._bars is not None:
            self._bars.stop()

    def _begin(self, stage: _Stage) -> None:
        if self._bars is not None:
            self._tasks[stage.name] = self._bars.add_task(stage.name, total=stage.total, state="")
            return
        if not self._is_telling:
            return
        what = "" if stage.total is None else f", {stage.total:,} {stage.unit}".rstrip()
        self._print(f"{one_line(stage.name)}: begins{what}")

    def _finish(self, now_seconds: float) -> None:
        if self._stage is None or self._bars is not None or not self._is_telling:
            return
        stage, self._stage = self._stage, None
        spent = duration(now_seconds - stage.start_seconds)
        done = f"{stage.done:,} {stage.unit}".rstrip() if stage.done or stage.unit else ""
        summary = ", ".join(filter(None, [f"ends after {spent}", done, stage.note]))
        self._print(f"{one_line(stage.name)}: {one_line(summary)}")

    def _print(self, line: str) -> None:
        with suppress(OSError):  # A full disk or a closed terminal does not stop the work.
            self._terminal.print(line)

    def _tick(self) -> None:
        while not self._ended.wait(self._line_seconds):
            with self._lock:
                if self._stage is not None:
                    self._is_telling = True
                    state = self._stage.state(self._clock())
                    self._print(f"{one_line(self._stage.name)}: {one_line(state)}")


class _LiteralColumn(ProgressColumn):
    """A column of literal text; rich's own interprets markup."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form

    def render(self, task: Task) -> Text:
        return Text(one_line(self._form.format(task=task)), overflow="fold")


def duration(seconds: float) -> str:
    """Returns such as "45 s", "1 min 30 s" or "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@contextmanager
def query_progress(
    totals: Mapping[str, int], before: str = "encode the gallery"
) -> Iterator[Callable[[str, int], None]]:
    """Gives a function that shows how many queries of a direction are done.

    `before` is what is done before the first of them.
    """
    with LongWork() as work:
        work.show(before, 0)
        yield lambda name, done: work.show(name, done, totals[name], unit="queries")
