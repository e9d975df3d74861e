"""The terminal: what a person reads goes to stdout, what went wrong to stderr."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

out = Console()
errors = Console(stderr=True)


def progress_bar(unit: str) -> Progress:
    """Returns a bar that shows how many, how fast (field `rate`, in `unit` a second), how long."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{{task.fields[rate]:.0f}} {unit}/s"),
        TimeRemainingColumn(),
        console=out,
    )


@contextmanager
def query_progress(totals: Mapping[str, int]) -> Iterator[Callable[[str, int], None]]:
    """Gives a function that shows how many queries of a direction are done."""
    with progress_bar("queries") as bar:
        tasks, start_times = {}, {}

        def show(name: str, done: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=totals[name], rate=0.0)
                start_times[name] = time.monotonic()
                return
            rate = done / (time.monotonic() - start_times[name])
            bar.update(tasks[name], completed=done, rate=rate)

        yield show
