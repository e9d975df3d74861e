"""Trains into a folder: the best networks, what made them, and a state to resume from."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tandem.installation import __version__
from tandem.lab.neighbours.leaprr.config import LeaprrConfig, Profile
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel
from tandem.lab.neighbours.leaprr.saved_model import load_leaprr, save_leaprr
from tandem.lab.neighbours.leaprr.training import LeaprrDiverged, LeaprrRun, OnStep
from tandem.lab.neighbours.lists.corpus_neighbours import (
    OWN_POOLS,
    CorpusNeighbours,
    base_name,
)
from tandem.lab.neighbours.lists.neighbour_file import NeighbourManifest
from tandem.modeling.published.pickled_tensors import read_pickled_tensors
from tandem.platform.files.json_object import FileInvalid, from_fields, read_object
from tandem.platform.files.tensor_file import opened_for_torch
from tandem.platform.files.whole_file import write_text_whole, write_whole

MODEL_NAME: Final = "leaprr.safetensors"
MANIFEST_NAME: Final = "training.json"
STATE_NAME: Final = "run_state.pt"

OnEpoch = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class LeaprrPlan:
    """Says what a run trains on, and how; two runs of one plan give the same networks."""

    profile: Profile
    config: LeaprrConfig
    seed: int
    epoch_count: int
    train: NeighbourManifest
    dev: NeighbourManifest


@dataclass(frozen=True, slots=True)
class LeaprrTraining:
    """Describes networks: their plan, and how far and how well they were trained."""

    plan: LeaprrPlan
    done_epoch_count: int
    dev_recall_sums: tuple[float, ...]
    """The rSum on dev after each epoch; the best epoch's networks are kept."""
    seconds: float
    tandem: str
    """The release that trained."""
    scored_pairs: str | None = None
    """The form of the similarities of pairs that a cross-encoder scored; None over a bi-encoder
    alone, and where an older release did not say."""

    @property
    def best_epoch(self) -> int:
        """The number of the epoch whose networks are kept, from 1."""
        return self.dev_recall_sums.index(max(self.dev_recall_sums)) + 1

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done."""
        return self.done_epoch_count >= self.plan.epoch_count


class LeaprrFolder:
    """Holds one run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check_free(self) -> None:
        """Raises ValueError if the folder holds another run's files."""
        if (self.path / STATE_NAME).exists():
            raise ValueError(
                f"{self.path} holds an unfinished run: --resume continues it, --overwrite replaces "
                "it, --folder trains elsewhere"
            )
        if (self.path / MODEL_NAME).exists():
            raise ValueError(
                f"{self.path} holds trained networks: --overwrite replaces them, --folder trains "
                "elsewhere"
            )

    @property
    def has_state(self) -> bool:
        """Whether there is an unfinished run."""
        return (self.path / STATE_NAME).is_file()

    def is_over(self, plan: LeaprrPlan) -> bool:
        """Returns whether the folder holds the finished run of this plan."""
        if self.has_state or not (self.path / MODEL_NAME).is_file():
            return False
        training = self.read()[1]
        return training.plan == plan and training.is_over

    def kept(self) -> str:
        """Returns what an interrupted run leaves and how to continue."""
        if self.has_state:
            return f"{self.path} keeps the run up to its last epoch; --resume continues from there"
        return "there was no epoch to resume from yet; run the same command again"

    def clear(self) -> None:
        """Removes another run's files."""
        for name in (STATE_NAME, MODEL_NAME, MANIFEST_NAME):
            (self.path / name).unlink(missing_ok=True)

    def train(
        self,
        plan: LeaprrPlan,
        corpora: tuple[CorpusNeighbours, CorpusNeighbours],
        *,
        resume: bool,
        on_step: OnStep = lambda _step, _loss: None,
        on_epoch: OnEpoch = lambda _epoch, _recall_sum: None,
    ) -> LeaprrTraining:
        """Trains on the first corpus, chooses on the second, and keeps each best epoch.

        `on_epoch` is called with each epoch's number and its rSum on dev. Raises LeaprrDiverged
        naming the step and what is kept, and ValueError where there is nothing to resume.
        """
        lists, dev = (each.similarity_lists() for each in corpora)
        run = LeaprrRun(lists, plan.config, epoch_count=plan.epoch_count, seed=plan.seed, dev=dev)
        seconds_before = self._restored(run, plan) if resume else 0.0
        start_time = time.monotonic()
        self.path.mkdir(parents=True, exist_ok=True)
        while not run.is_over:
            try:
                run.run_epoch(on_step)
            except LeaprrDiverged as error:
                has_best = (self.path / MODEL_NAME).is_file()
                kept = "keeps the best networks of the epochs before" if has_best else "has none"
                raise LeaprrDiverged(f"{error}. {self.path} {kept}.") from error
            training = LeaprrTraining(
                plan,
                run.done_count,
                tuple(run.dev_recall_sums),
                round(seconds_before + time.monotonic() - start_time, 1),
                __version__,
                _form(plan.train.pool_size),
            )
            if run.is_best:
                save_leaprr(self.path / MODEL_NAME, run.best)
            self._write(plan, run, training)
            on_epoch(run.done_count, training.dev_recall_sums[-1])
        (self.path / STATE_NAME).unlink(missing_ok=True)
        return self.read()[1]

    def read(self) -> tuple[LeaprrModel, LeaprrTraining]:
        """Returns the best networks and what made them.

        Raises FileInvalid naming the file, also for networks that learned from another form of a
        cross-encoder's similarities than they would be given.
        """
        model = load_leaprr(self.path / MODEL_NAME)
        manifest = self.path / MANIFEST_NAME
        try:
            training = from_fields(LeaprrTraining, read_object(manifest))
        except FileInvalid:
            raise
        except ValueError as error:
            raise FileInvalid(
                f"{manifest} describes no training of this version: {error}"
            ) from error
        if training.plan.config != model.config:
            raise FileInvalid(f"{manifest} describes other networks than {MODEL_NAME} next to it")
        check_form(self.path, training.plan.train.pool_size, training.scored_pairs)
        return model, training

    def _restored(self, run: LeaprrRun, plan: LeaprrPlan) -> float:
        """Loads the state into the run, and returns the seconds that it took so far."""
        path = self.path / STATE_NAME
        if not path.is_file():
            if (self.path / MODEL_NAME).is_file():
                raise ValueError(
                    f"the run in {self.path} is over, so there is nothing to resume; --overwrite "
                    "trains again"
                )
            raise ValueError(f"there is no run in {self.path} to resume; drop --resume")
        try:
            content = read_pickled_tensors(path)
            kept = json.loads(content["plan"])
            given = json.loads(json.dumps(asdict(plan)))
            differing = _differing(kept, given)
            if not differing:
                run.restore(content["state"])
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged; delete it to start over") from error
        if differing:
            raise ValueError(
                f"{path} is of another run: {', '.join(differing)} differ; resume with the same "
                "options, or train with --overwrite"
            )
        return float(content["seconds"])

    def _write(self, plan: LeaprrPlan, run: LeaprrRun, training: LeaprrTraining) -> None:
        write_text_whole(self.path / MANIFEST_NAME, json.dumps(asdict(training), indent=1) + "\n")
        plan_text, seconds = json.dumps(asdict(plan)), training.seconds

        def write(path: Path) -> None:
            with opened_for_torch(path) as file:
                torch.save({"plan": plan_text, "state": run.state(), "seconds": seconds}, file)

        write_whole(self.path / STATE_NAME, write)


def check_form(folder: Path, pool_size: int, found: object) -> None:
    """Raises FileInvalid for networks of another form of similarities than they would be given."""
    if found != (wanted := _form(pool_size)):
        raise FileInvalid(
            f"{folder} learned over {base_name(pool_size)} from similarities of the form "
            f"{found or 'that an older release made'}, and {wanted} is read: train it again, with "
            "tandem train neighbours --overwrite"
        )


def _form(pool_size: int) -> str | None:
    """Returns the form of similarities that a run over pools of this size is given now."""
    return OWN_POOLS if pool_size else None


def _differing(kept: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """Returns the names of fields that two plans do not share, with those of their parts."""
    names = []
    for name in sorted(kept.keys() | given.keys()):
        one, other = kept.get(name), given.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            names += [f"{name} {part}" for part in _differing(one, other)]
        elif one != other:
            names.append(name)
    return names
