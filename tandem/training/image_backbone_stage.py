"""The first stage: the image backbone learns to name drawings, and is then frozen.

Shapes: B rows, H W pixels, R image tokens, D width, C classes.
"""

import torch
from torch import nn
from torch.optim import AdamW

from tandem.modeling.image_backbone import ImageBackbone
from tandem.training.data.scene_labels import class_count
from tandem.training.data.scene_pairs import labelled_pixels
from tandem.training.losses import labelling_loss
from tandem.training.optimisation import check_loss, step, warm_up_then_linear
from tandem.training.run import Run, restore


def train_image_backbone(backbone: ImageBackbone, image_size: int, run: Run) -> None:
    """Trains it to label drawings, then freezes it: what follows never pays for a convolution.

    One process does, and gives it to the others: batch norm reads whole batches.
    """
    backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if run.processes.is_first:
        _train(backbone, image_size, run)
    run.processes.take_from_first(backbone)
    backbone.eval().requires_grad_(False)


def _train(backbone: ImageBackbone, image_size: int, run: Run) -> None:
    recipe, step_count, compute = run.recipe, run.recipe.backbone_step_count, run.compute
    head = nn.Linear(backbone.project.out_features, class_count()).to(compute.device)
    backbone.train()
    optimiser = AdamW(
        [*backbone.parameters(), *head.parameters()], lr=recipe.backbone_learning_rate
    )
    schedule = warm_up_then_linear(optimiser, step_count)
    modules = {"backbone": backbone, "head": head}
    done = 0
    if later := run.found("encoder"):
        backbone.load_state_dict(later.modules["backbone"])
        done = step_count
    elif state := run.found("backbone"):
        restore(state, modules, optimiser, schedule)
        done = state.step
    batches = labelled_pixels(
        recipe.seed, recipe.backbone_batch_size, step_count, image_size, start=done
    )
    run.progress("backbone", done, step_count, "")
    for number, (pixels_BHWC, classes_BR) in enumerate(batches, start=done + 1):
        pixels_BHWC, classes_BR = compute.put(pixels_BHWC), compute.put(classes_BR)
        with compute.autocast():
            logits_BRC = head(backbone.tokens(pixels_BHWC))
        loss = labelling_loss(logits_BRC, classes_BR)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        with run.place("backbone", number, step_count).named():
            check_loss("labelling", loss.item())
            step(optimiser, recipe.gradient_clip_norm)
        schedule.step()
        if number % 10 == 0 or number == step_count:
            drawn = classes_BR > 0
            right = (logits_BRC.argmax(-1) == classes_BR)[drawn].float().mean().item()
            note = f"loss {loss.item():.3f}, drawings named right {right:.1%}"
            run.progress("backbone", number, step_count, note)
        if run.keeps_after(number) or number == step_count:
            place = run.place("backbone", number, step_count)
            with place.named():
                place.check_weights(modules.values())
        run.keep("backbone", number, modules, optimiser, schedule)
