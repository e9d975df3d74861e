"""Trains in rounds and keeps the best checkpoint: a joint encoder, or a network of the zoo.

In a round of a joint encoder BE and CE take turns (Geigle et al. 2022, section 3.3). Its image
tokens are fixed by now (backbone_stage.py); objectives.py has each use's loss.
"""

import platform
import random
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from statistics import fmean as mean
from typing import Protocol

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from tandem.lab.training.data.batches import ImageTextBatch, RuledTexts, Splitter
from tandem.lab.training.data.mined_negatives import MinedNegatives
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.dev_recall import DevRecall, Trained, dev_recall
from tandem.lab.training.optimisation import (
    accumulate_gradient,
    check_loss,
    recipe_groups,
    recipe_optimiser,
    recipe_schedule,
    step,
)
from tandem.lab.training.published.learner import PublishedLearner
from tandem.lab.training.published.trained_folder import save_trained_folder
from tandem.lab.training.recipes.recipe import Rounds
from tandem.lab.training.runs.loss_curve import LossCurve
from tandem.lab.training.runs.run import NOTE_STAGE, Run, StepPlace, restore
from tandem.lab.training.stages.objectives import Objectives
from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.stored_weights import listed


class Learner(Protocol):
    """Learns in rounds; a resumed run restores what it names here."""

    stage: str
    modules: Mapping[str, nn.Module]
    optimiser: AdamW
    schedule: LambdaLR
    rng: random.Random
    """Draws every batch, so that a run repeats."""
    mined: MinedNegatives | None

    def learn(self, round_number: int, place: StepPlace) -> dict[str, float]:
        """Takes the steps of a round; returns their mean loss by use."""
        ...

    def recall(self) -> DevRecall:
        """Returns the recalls on dev."""
        ...

    def save(self, about: dict[str, object]) -> None:
        """Writes a checkpoint with what made it."""
        ...


def train_in_rounds(learner: Learner, run: Run) -> DevRecall:
    """Trains for the recipe's rounds, keeps the best checkpoint by dev score; returns its recall.

    A resumed run continues with weights, optimiser, schedule and generators as they were after the
    last round whose state was kept.
    """
    recipe, stage, modules = run.recipe, learner.stage, learner.modules
    optimiser, schedule, rng = learner.optimiser, learner.schedule, learner.rng
    best: DevRecall | None = None
    done = 0
    if state := run.found(stage):
        restore(state, modules, optimiser, schedule, rng)
        done = state.step
        best = DevRecall(**state.best) if state.best else None
        learner.mined = MinedNegatives.from_tensors(state.mined) if state.mined else None
    run.progress(stage, done, recipe.round_count, "")

    curve_of_run: AbstractContextManager[LossCurve | None] = (
        closing(LossCurve(run.folder, done, run.seconds()))
        if run.processes.is_first
        else nullcontext()
    )
    with curve_of_run as curve:
        for number in range(done + 1, recipe.round_count + 1):
            place = run.place(stage, number, recipe.round_count)
            losses = learner.learn(number, place)
            learning_rate = float(schedule.get_last_lr()[0])
            schedule.step()  # once a round, as the paper's code does

            # Evaluate on dev, and keep the checkpoint if it is the best so far.
            recall: DevRecall | None = None
            with place.named():
                if recipe.measures_after(number) or run.keeps_after(number):
                    place.check_weights(modules.values())
            if recipe.measures_after(number):
                recall = learner.recall()
                run.progress(stage, number, recipe.round_count, f"dev {recall}")
                if best is None or recall.score > best.score:
                    best = recall
                    if run.processes.is_first:
                        with place.named():
                            learner.save(made_by(run, number, recall))

            # Record the round in the curve before the state: a resumed run needs both.
            if curve:
                curve.add(number, losses, learning_rate, run.seconds(), recall)
            if number % 10 == 0:
                note = ", ".join(f"{use.upper()} loss {loss:.3f}" for use, loss in losses.items())
                run.progress(stage, number, recipe.round_count, note)
            run.keep(stage, number, modules, optimiser, schedule, rng, best, learner.mined)
    assert best is not None, "the last round is always scored"
    return best


class EncoderRounds(Objectives):
    """Takes one step or more a round for each use that the recipe trains, in turn.

    All are on one set of weights with one optimiser: triplet loss for the BE, pair classification
    for the CE, masked words, and mined negatives.
    """

    stage = "encoder"

    def __init__(
        self, model: Trained, pool: PairPool, dev: ImageTextBatch, tokenizer: Splitter, run: Run
    ) -> None:
        recipe = run.recipe
        assert isinstance(recipe, Rounds), "others have no rounds of BE and CE"
        self.rng = random.Random(f"rounds/{recipe.seed}")
        super().__init__(model, pool, self.rng, tokenizer, run)
        self._run, self._tokenizer, self._dev = run, tokenizer, run.compute.put(dev)
        groups = recipe_groups(model.joint_encoder, recipe)
        self.optimiser = recipe_optimiser(groups, recipe.learning_rate, recipe)
        self._learning = [each for group in groups for each in group["params"]]  # type: ignore[attr-defined]
        self.schedule = recipe_schedule(self.optimiser, recipe.round_count, recipe)
        self.modules: Mapping[str, nn.Module] = {
            "backbone": model.image_backbone,
            "encoder": model.joint_encoder,
        }
        self._groups_N = pool.groups() if recipe.mined_refresh_round_count else None

    def learn(self, round_number: int, place: StepPlace) -> dict[str, float]:
        """Takes one step for each use: gradients are averaged over micro-batches and processes."""
        run, recipe, model = self._run, self._recipe, self._model
        model.train()
        model.image_backbone.eval()  # frozen: its batch norms use the statistics they learned
        if self._groups_N is not None and recipe.mines_before(round_number):
            self.mined = self.mine(self._groups_N, round_number)
        loss_of = {
            "be": self.be_loss,
            "mlm": self.mlm_loss,
            "ce": self.ce_loss,
            "ance": self.ance_loss,
        }
        losses: dict[str, list[float]] = {}
        for use in recipe.uses_in_order(is_mined=self.mined is not None):
            self.optimiser.zero_grad(set_to_none=True)
            loss = accumulate_gradient(
                partial(loss_of[use], round_number), recipe.accumulation_step_count
            )
            # Averaged before the check, so that all processes stop at the same bad loss.
            mean_loss = run.processes.mean(loss)
            run.processes.average_gradients(self._learning)
            with place.named():
                check_loss(use.upper(), mean_loss)
                step(self.optimiser, recipe.gradient_clip_norm)
            losses.setdefault(use, []).append(mean_loss)
        if round_number == 1 and isinstance(model, PublishedLearner) and model.unlearned():
            note = f"weights without a gradient stay as they are: {listed(model.unlearned())}"
            run.progress(NOTE_STAGE, 0, 0, note)
        return {use: mean(values) for use, values in losses.items()}

    def recall(self) -> DevRecall:
        self._model.eval()
        with self._compute.autocast():
            return dev_recall(self._model, self._dev, self._special.cls_id, self._recipe)

    def save(self, about: dict[str, object]) -> None:
        run, model = self._run, self._model
        if isinstance(model, PublishedLearner):
            about = {**about, "weights_without_gradient": model.unlearned()}
            save_trained_folder(run.folder, model, about, run.trained_pictures)
            return
        assert not isinstance(self._tokenizer, RuledTexts), "only published models have rules"
        save_checkpoint(
            run.folder, model, self._tokenizer, about, trained_pictures=run.trained_pictures
        )


def made_by(run: Run, round_number: int, recall: DevRecall) -> dict[str, object]:
    """Returns what made a checkpoint, for its training.json."""
    return {
        "recipe": run.recipe.to_dict(),
        "round": round_number,
        "dev_recall_percent": recall.to_dict(),
        "training_seconds": round(run.seconds()),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "device": str(run.compute.device),
        "process_count": run.processes.count,
        "skipped_records": run.skipped_counts,
    }
