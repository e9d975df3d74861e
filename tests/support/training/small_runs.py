"""Runs of the CPU alone, and what stops one in the middle."""

from pathlib import Path

import torch

from tandem.lab.training.processes import ALONE
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.runs.run import Progress, Run


class Stopped(Exception):
    """Raised in the middle of a run."""


def stop_at(stage: str, step: int) -> Progress:
    """Returns a progress that stops a run as a crash would, at that step or the first told after.

    A stage tells its first round and every tenth.
    """

    def progress(told: str, done: int, *_: object) -> None:
        if told == stage and done >= step:
            raise Stopped

    return progress


def fresh_run(recipe: Recipe, folder: Path) -> Run:
    """Returns a run without progress that resumes nothing."""
    cpu = torch.device("cpu")
    return Run(
        recipe,
        folder,
        lambda *_: None,
        state_every=1_000,
        resume=False,
        device=cpu,
        processes=ALONE,
    )
