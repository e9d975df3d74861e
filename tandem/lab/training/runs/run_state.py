"""Saves and loads the state of an unfinished run, so that a resume gives the same weights."""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from tandem.lab.training.recipes.recipe import Recipe
from tandem.model_io.texts.visible_text import VISIBLE_TEXT_VERSION
from tandem.modeling.published.pickled_tensors import PickleRefused, read_pickled_tensors
from tandem.platform.files.tensor_file import opened_for_torch

FILE_NAME = "run_state.pt"
# Of a run: the image backbone, the rounds of an encoder or of a zoo's network, the matcher.
_STAGES: Final = ("backbone", "encoder", "zoo", "matcher")


class RunStateInvalid(ValueError):
    """The run cannot resume from what its folder holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Describes a run between two steps, with exact weights (a checkpoint's are rounded)."""

    stage: str
    step: int
    """Steps of the stage that are done."""
    modules: dict[str, dict[str, Any]]
    """Weights and buffers, by the module's name."""
    optimiser: dict[str, Any]
    schedule: dict[str, Any]
    torch_rng: Tensor
    batch_rng: Tensor
    """State of the generator that draws batches, as int64; empty in a stage that has none."""
    mined: dict[str, Tensor]
    """Present negatives, from MinedNegatives.to_tensors; empty before the first mining."""
    best: dict[str, float | None] | None
    seconds: float


class RunStateFile:
    """Keeps one run's state on disk; a save replaces the file whole, so a kill leaves the last."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self._path = folder / FILE_NAME
        self._recipe = recipe

    def save(self, state: RunState) -> None:
        """Writes the state and syncs it to disk."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".new")
        fields = {name: getattr(state, name) for name in RunState.__slots__}
        content = {
            "recipe": self._recipe.to_dict(),
            "state": fields,
            "text_version": VISIBLE_TEXT_VERSION,
        }
        try:
            with opened_for_torch(beside) as file:
                torch.save(content, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        finally:
            beside.unlink(missing_ok=True)

    def load(self) -> RunState | None:
        """Returns the state, None without one; raises RunStateInvalid for another run's."""
        if not self._path.is_file():
            return None
        try:
            content = read_pickled_tensors(self._path)
            recipe, state = dict(content["recipe"]), RunState(**content["state"])
        except (PickleRefused, KeyError, TypeError, ValueError) as error:
            why = (
                error if isinstance(error, PickleRefused) else f"{self._path} is of another version"
            )
            raise RunStateInvalid(f"{why}; delete it to start over") from error
        if state.stage not in _STAGES:
            raise RunStateInvalid(
                f"{self._path} is of the stage {state.stage!r}, which this release does not have; "
                "resume with the release that wrote it, or delete it to start over"
            )
        if content.get("text_version") != VISIBLE_TEXT_VERSION:
            raise RunStateInvalid(
                f"{self._path} is from a release that reads texts differently, so its tokens do "
                "not match this one's; delete it to start over"
            )
        if differing := self._recipe.differing(recipe):
            raise RunStateInvalid(
                f"{self._path} is of another recipe: {', '.join(differing)} differ; "
                "resume with that recipe, or delete the file to start over"
            )
        return state

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)


def batch_rng_state(rng: random.Random) -> Tensor:
    """Returns the generator's state as int64, which needs no pickle to be saved.

    >>> rng = random.Random(1)
    >>> state = batch_rng_state(rng)
    >>> expected = rng.random()
    >>> restore_batch_rng(rng, state)
    >>> rng.random() == expected
    True
    """
    _, words, _ = rng.getstate()
    return torch.tensor(words, dtype=torch.int64)


def restore_batch_rng(rng: random.Random, state: Tensor) -> None:
    version, _, _ = rng.getstate()
    rng.setstate((version, tuple(state.tolist()), None))
