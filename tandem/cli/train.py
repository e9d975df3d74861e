"""`tandem train`: a recipe into a checkpoint."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tandem.cli.console import out
from tandem.modeling.config import ImageSource
from tandem.training.recipes import RECIPES, recipe_named


def train(
    recipe: Annotated[str, typer.Argument(help=f"one of {', '.join(sorted(RECIPES))}")],
    folder: Annotated[Path, typer.Option(help="where the checkpoint goes")] = Path("checkpoints"),
    seed: Annotated[int, typer.Option(help="of everything random")] = 1,
    pretrained: Annotated[
        str | None,
        typer.Option(help="folder or hub name of a BERT, MiniLM, RoBERTa or XLM-R to begin from"),
    ] = None,
    image_source: Annotated[
        ImageSource | None, typer.Option(help="of image tokens; unset is the recipe's")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with a run that stopped")] = False,
) -> None:
    """Trains a model by a recipe; the best checkpoint by dev recall is kept."""
    # Here: torch takes seconds, which no other command need wait.
    from tandem.training.train import train as run_training

    chosen = recipe_named(recipe, seed)
    if pretrained is not None:
        chosen = replace(chosen, pretrained=pretrained)
    if image_source is not None:
        chosen = replace(chosen, image_source=image_source)
    target = folder / recipe
    start_time = time.monotonic()
    with Progress(
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=out,
    ) as bar:
        tasks = {}

        def show(stage: str, step: int, step_count: int, note: str) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=step_count, note="")
            bar.update(tasks[stage], completed=step, note=note)
            if "dev" in note:
                bar.console.print(f"{time.monotonic() - start_time:8.0f} s  step {step:,}: {note}")

        recall = run_training(chosen, target, show, resume=resume)
    out.print(f"{target}: dev {recall}")
