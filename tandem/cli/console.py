"""The terminal: what a person reads goes to stdout, what went wrong to stderr."""

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
