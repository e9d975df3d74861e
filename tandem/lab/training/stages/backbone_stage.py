"""Trains the image backbone before the rounds, then freezes it.

The rounds read image tokens that are computed once, so none of them pays for a convolution. What
teaches the backbone is a lesson (backbone_lessons.py).
"""

import torch
from torch.optim import AdamW

from tandem.lab.training.optimisation import check_loss, step, warm_up_then_decay
from tandem.lab.training.recipes.recipe import Rounds
from tandem.lab.training.runs.run import Run, restore, restore_modules
from tandem.lab.training.stages.backbone_lessons import BackboneLesson
from tandem.modeling.joint_model import JointModel

BACKBONE_STAGE = "backbone"


def train_image_backbone(model: JointModel, lesson: BackboneLesson, run: Run) -> None:
    """Trains the backbone for the recipe's `backbone_step_count` and freezes it.

    Only the first process trains, because batch norm reads whole batches.
    """
    # Convolutions on a CPU are faster with channels last.
    lesson.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if run.processes.is_first:
        _train(model, lesson, run)
    run.processes.take_from_first(model)
    model.eval()
    lesson.backbone.requires_grad_(False)


def _train(model: JointModel, lesson: BackboneLesson, run: Run) -> None:
    recipe = run.recipe
    assert isinstance(recipe, Rounds), "others keep their backbone"
    step_count, modules = recipe.backbone_step_count, lesson.modules
    lesson.backbone.requires_grad_(True)
    optimiser = AdamW(lesson.parameter_groups())
    schedule = warm_up_then_decay(optimiser, step_count)

    # Where the run was stopped: after this stage, within it, or nowhere.
    done = 0
    if state := run.found(BACKBONE_STAGE):
        restore(state, modules, optimiser, schedule, lesson.rng)
        done = state.step
    elif run.state and "backbone" in run.state.modules:  # an older release's matcher has none
        kept = run.state.modules
        restore_modules(run.state, {n: each for n, each in modules.items() if n in kept})
        done = step_count
    model.train()
    run.progress(BACKBONE_STAGE, done, step_count, "")
    if done == step_count:
        return
    for number, loss in enumerate(lesson.losses(done), start=done + 1):
        # One step along the gradient, unless loss or gradient are NaN or infinite.
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        place = run.place(BACKBONE_STAGE, number, step_count)
        with place.named():
            check_loss(lesson.loss_name, loss.item())
            step(optimiser, recipe.gradient_clip_norm)
        schedule.step()

        is_last = number == step_count
        if number % 10 == 0 or is_last:
            run.progress(BACKBONE_STAGE, number, step_count, lesson.note())
        if run.keeps_after(number) or is_last:
            with place.named():
                place.check_weights(modules.values())
        run.keep(BACKBONE_STAGE, number, modules, optimiser, schedule, lesson.rng)
