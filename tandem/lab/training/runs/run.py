"""Holds what the stages of a training run share, and keeps the state that it can resume from."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from tandem.lab.training.compute import Compute
from tandem.lab.training.data.mined_negatives import MinedNegatives
from tandem.lab.training.dev_recall import DevRecall
from tandem.lab.training.optimisation import NotFinite
from tandem.lab.training.processes import Processes
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.runs.loss_curve import FILE_NAME as CURVE_NAME
from tandem.lab.training.runs.loss_curve import rounds_in_curve
from tandem.lab.training.runs.run_state import (
    FILE_NAME,
    RunState,
    RunStateFile,
    RunStateInvalid,
    batch_rng_state,
    restore_batch_rng,
)
from tandem.modeling.checkpoint import WeightsNotFinite
from tandem.modeling.checkpoint_files import TRAINING, WEIGHTS
from tandem.modeling.stored_weights import not_finite
from tandem.modeling.trained_pictures import TrainedPictures
from tandem.platform.files.json_object import read_object

# Called with the stage, the step reached, the number of steps, and a note to show.
Progress = Callable[[str, int, int, str], None]
NOTE_STAGE: Final = "note"
"""The stage of a note alone, which a user should read before the run takes hours."""

# What torch raises for a state of another shape.
_OTHER_CODE = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_SHOWN_LENGTH = 200
# Batches that every process draws and learns from whole.
_WHOLE = ("backbone_batch_size", "matcher_batch_size")


class RunFolderTaken(ValueError):
    """The folder holds another run's files."""


def check_init_stays(init: Path, folder: Path) -> None:
    if init.resolve() == folder.resolve():
        raise ValueError(
            f"{folder} holds the checkpoint that the run begins with, and would be overwritten; "
            "choose another --folder"
        )


def check_unfinished(folder: Path) -> None:
    """Raises RunStateInvalid for a finished run, whose result a resume would overwrite.

    A run that was killed before its first state is not finished: it starts over.
    """
    if is_over(folder):
        raise RunStateInvalid(
            f"the run in {folder} is over, so there is nothing to resume; choose another --folder, "
            "or use --overwrite instead of --resume to train again"
        )


def is_over(folder: Path) -> bool:
    """Returns whether the folder holds a finished run."""
    if (folder / FILE_NAME).is_file() or not (folder / TRAINING).is_file():
        return False
    try:
        made_by = read_object(folder / TRAINING)
    except ValueError:  # cut by a kill
        return False
    recipe = made_by.get("recipe", {})
    if recipe.get("begins_with_towers"):  # which has no rounds
        return made_by.get("dev_recall_percent", {}).get("ce_r1") is not None
    return rounds_in_curve(folder) == recipe.get("round_count")


def check_free(folder: Path) -> None:
    if not any((folder / name).exists() for name in (WEIGHTS, FILE_NAME, CURVE_NAME)):
        return
    what = "an unfinished run" if (folder / FILE_NAME).exists() else "a checkpoint"
    on = "--resume continues it, " if (folder / FILE_NAME).exists() else ""
    raise RunFolderTaken(
        f"{folder} holds {what}: {on}--overwrite replaces it, --folder trains elsewhere"
    )


def check_there(folder: Path) -> None:
    if not folder.is_dir():
        raise RunStateInvalid(
            f"there is no run in {folder} to resume; drop --resume to start one, or give the "
            "--folder of the run"
        )


def no_progress(*_: object) -> None:
    """Ignores progress, in every process but the first."""


class TrainingDiverged(ValueError):
    """A loss, a gradient or a weight is NaN or infinite; no later step can repair it."""


@dataclass(frozen=True, slots=True)
class StepPlace:
    stage: str
    number: int
    count: int
    folder: Path
    precision: str

    @contextmanager
    def named(self) -> Iterator[None]:
        """Turns NotFinite and WeightsNotFinite raised within into TrainingDiverged at this step."""
        try:
            yield
        except (NotFinite, WeightsNotFinite) as error:
            finer = "--precision fp32, " if self.precision != "fp32" else ""
            raise TrainingDiverged(
                f"step {self.number:,} of {self.count:,} of stage {self.stage}: {error}. "
                f"{self._kept()} To try: {finer}another --seed, another start (--init, --from), or "
                "a recipe with a lower learning_rate; also check the corpus' pictures and regions"
            ) from error

    def check_weights(self, modules: Iterable[nn.Module]) -> None:
        for module in modules:
            if names := not_finite(module.state_dict()):
                raise NotFinite(f"weights are NaN or infinite: {names}")

    def _kept(self) -> str:
        has_checkpoint = (self.folder / WEIGHTS).is_file() and (self.folder / TRAINING).is_file()
        kept = f"{self.folder} {'keeps its earlier' if has_checkpoint else 'has no'} checkpoint."
        if (self.folder / FILE_NAME).is_file():
            kept += " --resume continues from the last state before it."
        return kept


class Run:
    """Holds the recipe, the folder, the device, the processes and the state that was found."""

    def __init__(  # noqa: PLR0913
        self,
        recipe: Recipe,
        folder: Path,
        progress: Progress,
        *,
        state_every: int,
        resume: bool,
        device: torch.device,
        processes: Processes,
        skipped_counts: Mapping[str, int] | None = None,
        trained_pictures: TrainedPictures | None = None,
    ) -> None:
        """Raises ValueError for a recipe that trains nothing, RunStateInvalid for another's state.

        `state_every`: steps between states on disk. `skipped_counts`: skipped records by fault.
        `trained_pictures`: pictures to record in the checkpoint.
        """
        if not (recipe.trains_be or recipe.trains_ce):
            raise ValueError(f"recipe {recipe.name} has steps for neither BE nor CE")
        for field, count in recipe.batch_family_counts.items():
            size = count * (2 if field == "ce_family_count" else 1)
            if size % processes.count and field not in _WHOLE:
                raise ValueError(
                    f"recipe {recipe.name} has a batch of {size} rows, which {processes.count} "
                    "processes cannot divide; start as many as divide it"
                )
        self.recipe, self.folder = recipe, folder
        self.skipped_counts = dict(skipped_counts or {})
        self.trained_pictures = trained_pictures
        self.compute, self.processes = Compute(device, recipe.precision), processes
        self.progress: Progress = progress if processes.is_first else no_progress
        self.state_file = RunStateFile(folder, recipe)
        self.state = self.state_file.load() if resume else None
        """The state to resume from, of any stage."""
        if self.state and self.state.best and not (folder / WEIGHTS).is_file():
            raise RunStateInvalid(
                f"{folder} lacks {WEIGHTS}, its best checkpoint so far, which no later round may "
                f"replace; restore it, or delete {FILE_NAME} next to it to start over"
            )
        if not resume and processes.is_first:
            self.state_file.delete()  # another run's, which must never be resumed
        processes.wait()  # all have loaded the state before the first writes the next
        self._state_every = state_every
        self._start_time = time.monotonic() - (self.state.seconds if self.state else 0.0)

    def seconds(self) -> float:
        """Returns how long the run has taken, without the time between a stop and a resume."""
        return time.monotonic() - self._start_time

    def found(self, stage: str) -> RunState | None:
        """Returns the state to resume from, if it is of this stage."""
        return self.state if self.state and self.state.stage == stage else None

    def place(self, stage: str, step: int, step_count: int) -> StepPlace:
        return StepPlace(stage, step, step_count, self.folder, self.recipe.precision)

    def keeps_after(self, step: int) -> bool:
        return step % self._state_every == 0

    def end(self, note: str) -> None:
        if self.processes.is_first:
            self.state_file.delete()
        self.progress("done", 1, 1, note)

    def keep(
        self,
        stage: str,
        step: int,
        modules: Mapping[str, nn.Module],
        optimiser: AdamW,
        schedule: LambdaLR,
        rng: random.Random | None = None,
        best: DevRecall | None = None,
        mined: MinedNegatives | None = None,
    ) -> None:
        """Writes the state if one is due after this step, in the first process only."""
        if not self.keeps_after(step) or not self.processes.is_first:
            return
        self.state_file.save(
            RunState(
                stage=stage,
                step=step,
                modules={name: module.state_dict() for name, module in modules.items()},
                optimiser=optimiser.state_dict(),
                schedule=schedule.state_dict(),
                torch_rng=torch.get_rng_state(),
                batch_rng=batch_rng_state(rng) if rng else torch.empty(0, dtype=torch.int64),
                mined=mined.to_tensors() if mined else {},
                best=asdict(best) if best else None,
                seconds=self.seconds(),
            )
        )


def restore(
    state: RunState,
    modules: Mapping[str, nn.Module],
    optimiser: AdamW,
    schedule: LambdaLR,
    rng: random.Random | None = None,
) -> None:
    """Restores everything that a step changes; raises RunStateInvalid for other parts' state."""
    restore_modules(state, modules)
    try:
        optimiser.load_state_dict(state.optimiser)
        schedule.load_state_dict(state.schedule)
        torch.set_rng_state(state.torch_rng)
        if rng:
            restore_batch_rng(rng, state.batch_rng)
    except _OTHER_CODE as error:
        raise _not_fitting(state, error) from error


def restore_modules(state: RunState, modules: Mapping[str, nn.Module]) -> None:
    try:
        for name, module in modules.items():
            module.load_state_dict(state.modules[name])
    except _OTHER_CODE as error:
        raise _not_fitting(state, error) from error


def _not_fitting(state: RunState, error: Exception) -> RunStateInvalid:
    said = " ".join(str(error).split())[:_SHOWN_LENGTH]
    return RunStateInvalid(
        f"{FILE_NAME} does not fit this release's {state.stage} stage ({said}); resume with the "
        "release that wrote it, or delete it to start over"
    )
