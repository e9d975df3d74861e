"""Trains the joint encoder in rounds: BE and CE take turns (Geigle et al. 2022, section 3.3).

Image tokens are fixed by now (backbone_stage.py); objectives.py has each use's loss.
"""

import platform
import random
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from statistics import fmean as mean

import torch
from tokenizers import Tokenizer

from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.joint_model import JointModel
from tandem.texts.special_tokens import special_tokens
from tandem.training.data.mined_negatives import MinedNegatives
from tandem.training.data.pair_pool import PairPool
from tandem.training.dev_recall import DevRecall, DevSet, dev_recall
from tandem.training.optimisation import (
    accumulate_gradient,
    check_loss,
    recipe_groups,
    recipe_optimiser,
    step,
    warm_up_then_decay,
)
from tandem.training.recipes.recipe import Rounds
from tandem.training.runs.loss_curve import CurvePoint, LossCurve
from tandem.training.runs.run import Run, restore
from tandem.training.stages.objectives import Objectives


def train_rounds(
    model: JointModel, pool: PairPool, dev: DevSet, tokenizer: Tokenizer, run: Run
) -> DevRecall:
    """Trains the joint encoder, keeps the best checkpoint by dev score and returns its recalls.

    A round is one step or more for each use that the recipe trains, in turn, on one set of weights
    with one optimiser: triplet loss for the BE, pair classification for the CE, masked words, and
    mined negatives.
    """
    recipe, progress = run.recipe, run.progress
    assert isinstance(recipe, Rounds), "others have no rounds of BE and CE"
    dev = run.compute.put(dev)

    # One optimiser for all uses; the learning rate warms up, then falls to 0.
    groups, learning = recipe_groups(model.joint_encoder, recipe)
    optimiser = recipe_optimiser(groups, recipe.learning_rate, recipe)
    schedule = warm_up_then_decay(
        optimiser, recipe.round_count, recipe.warm_up_step_count, recipe.learning_rate_decay
    )

    # What each step of a round minimises. One generator draws every batch, so that a run repeats.
    rng = random.Random(f"rounds/{recipe.seed}")
    cls_id = special_tokens(tokenizer).cls_id
    objectives = Objectives(model, pool, rng, tokenizer, run)
    loss_of = {
        "be": objectives.be_loss,
        "mlm": objectives.mlm_loss,
        "ce": objectives.ce_loss,
        "ance": objectives.ance_loss,
    }
    groups_N = pool.groups() if recipe.mined_refresh_round_count else None

    # Resume: weights, optimiser, schedule and generators as they were after the last kept round.
    best: DevRecall | None = None
    modules = {"backbone": model.image_backbone, "encoder": model.joint_encoder}
    done = 0
    if state := run.found("encoder"):
        restore(state, modules, optimiser, schedule, rng)
        done = state.step
        best = DevRecall(**state.best) if state.best else None
        objectives.mined = MinedNegatives.from_tensors(state.mined) if state.mined else None
    progress("encoder", done, recipe.round_count, "")

    with _curve(run, done) as curve:
        for round_number in range(done + 1, recipe.round_count + 1):
            place = run.place("encoder", round_number, recipe.round_count)
            model.train()
            model.image_backbone.eval()  # frozen: its batch norms use the statistics they learned
            losses: dict[str, list[float]] = {}

            # Every so many rounds, look up the negatives that the present BE finds hardest.
            if groups_N is not None and recipe.mines_before(round_number):
                objectives.mined = objectives.mine(groups_N, round_number)

            # One optimiser step for each use: forward and backward per micro-batch, average the
            # gradient over the processes, clip it, step.
            for use in recipe.uses_in_order(is_mined=objectives.mined is not None):
                optimiser.zero_grad(set_to_none=True)
                loss = accumulate_gradient(
                    partial(loss_of[use], round_number), recipe.accumulation_step_count
                )
                # Averaged before the check, so that all processes stop at the same bad loss.
                mean_loss = run.processes.mean(loss)
                run.processes.average_gradients(learning)
                with place.named():
                    check_loss(use.upper(), mean_loss)
                    step(optimiser, recipe.gradient_clip_norm)
                losses.setdefault(use, []).append(mean_loss)
            learning_rate = float(schedule.get_last_lr()[0])
            schedule.step()  # once a round, as the paper's code does

            # Evaluate on dev, and keep the checkpoint if it is the best so far.
            recall: DevRecall | None = None
            with place.named():
                if recipe.measures_after(round_number) or run.keeps_after(round_number):
                    place.check_weights(modules.values())
            if recipe.measures_after(round_number):
                model.eval()
                with run.compute.autocast():
                    recall = dev_recall(model, dev, cls_id, recipe)
                progress("encoder", round_number, recipe.round_count, f"dev {recall}")
                if best is None or recall.score > best.score:
                    best = recall
                    if run.processes.is_first:
                        about = made_by(run, round_number, recall)
                        with place.named():
                            save_checkpoint(
                                run.folder,
                                model,
                                tokenizer,
                                about,
                                trained_pictures=run.trained_pictures,
                            )

            # Record the round in the curve before the state: a resumed run needs both.
            means = {use: mean(values) for use, values in losses.items()}
            if curve:
                curve.add(CurvePoint(round_number, means, learning_rate, run.seconds(), recall))
            if round_number % 10 == 0:
                note = ", ".join(f"{use.upper()} loss {loss:.3f}" for use, loss in means.items())
                progress("encoder", round_number, recipe.round_count, note)
            run.keep(
                "encoder", round_number, modules, optimiser, schedule, rng, best, objectives.mined
            )
    assert best is not None, "the last round is always scored"
    return best


def _curve(run: Run, done_round_count: int) -> AbstractContextManager[LossCurve | None]:
    if not run.processes.is_first:
        return nullcontext()
    return closing(LossCurve(run.folder, done_round_count, run.seconds()))


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
