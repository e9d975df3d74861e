"""`tandem train`: a recipe into a checkpoint."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.console import out
from tandem.cli.training_bar import TrainingBar
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
    # Here: torch and matplotlib take seconds, which no other command need wait.
    from tandem.training.curve_plot import plot_run
    from tandem.training.train import train as run_training

    chosen = recipe_named(recipe, seed)
    if pretrained is not None:
        chosen = replace(chosen, pretrained=pretrained)
    if image_source is not None:
        chosen = replace(chosen, image_source=image_source)
    target = folder / recipe
    with TrainingBar(out) as bar:
        recall = run_training(chosen, target, bar.show, resume=resume)
    out.print(f"{target}: dev {recall}")
    out.print(f"losses and recalls over time: {plot_run(target)}")
