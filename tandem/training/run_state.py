"""What an unfinished run needs to go on as if it had never stopped."""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tandem.model_io.visible_text import VISIBLE_TEXT_VERSION
from tandem.modeling.published.pickled_tensors import PickleRefused, read_pickled_tensors
from tandem.training.recipes import Recipe

FILE_NAME = "run_state.pt"


class RunStateInvalid(ValueError):
    """The run cannot go on from what its folder holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run between two steps. Weights are exact, where a checkpoint's are rounded."""

    stage: str
    step: int
    """Steps of the stage that are done."""
    modules: dict[str, dict[str, Any]]
    """Weights and buffers of every module, by its name."""
    optimiser: dict[str, Any]
    schedule: dict[str, Any]
    torch_rng: Tensor
    batch_rng: Tensor
    """Of the generator that draws batches, as int64; empty in a stage that draws by number."""
    mined: dict[str, Tensor]
    """The negatives in use, by MinedNegatives.to_tensors; empty before the first mining."""
    best: dict[str, float | None] | None
    seconds: float
    """That the run has taken so far."""


class RunStateFile:
    """One run's state on disk: replaced whole, so that a kill leaves the last one."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self._path = folder / FILE_NAME
        self._recipe = recipe

    def save(self, state: RunState) -> None:
        """Returns once the state is on disk."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".new")
        fields = {name: getattr(state, name) for name in RunState.__slots__}
        with beside.open("wb") as file:
            content = {
                "recipe": self._recipe.to_dict(),
                "state": fields,
                "text_version": VISIBLE_TEXT_VERSION,
            }
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)

    def load(self) -> RunState | None:
        """Returns the state, or None where there is none.

        Raises RunStateInvalid for a damaged file, and for another recipe's: the two would be mixed.
        """
        if not self._path.is_file():
            return None
        try:
            content = read_pickled_tensors(self._path)
            recipe, state = dict(content["recipe"]), RunState(**content["state"])
        except (PickleRefused, KeyError, TypeError, ValueError) as error:
            why = (
                error if isinstance(error, PickleRefused) else f"{self._path} is of another version"
            )
            raise RunStateInvalid(f"{why}; delete it to start anew") from error
        if content.get("text_version") != VISIBLE_TEXT_VERSION:
            raise RunStateInvalid(
                f"{self._path} was kept by a release that reads texts in another way, and its "
                "tokens would be mixed with this one's; delete it to start anew"
            )
        if differing := self._recipe.differing(recipe):
            raise RunStateInvalid(
                f"{self._path} is of another recipe: {', '.join(differing)} differ; "
                "resume with that one, or delete the file to start anew"
            )
        return state

    def delete(self) -> None:
        """Removes it: the run is over."""
        self._path.unlink(missing_ok=True)


def batch_rng_state(rng: random.Random) -> Tensor:
    """Returns the generator's state as int64, so that no pickle is needed to keep it.

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
    """Sets the generator to a state that `batch_rng_state` returned."""
    version, _, _ = rng.getstate()
    rng.setstate((version, tuple(state.tolist()), None))
