"""The first stage: the image backbone learns to name drawings, and is then frozen.

Shapes: B rows, H W pixels, R image tokens, D width, C classes.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from tandem.corpus.scene import Scene
from tandem.corpus.scene_drawing import scene_pixels
from tandem.modeling.image_backbone import ImageBackbone
from tandem.training.losses import labelling_loss
from tandem.training.optimisation import step, warm_up_then_linear
from tandem.training.run import Progress, Run, restore
from tandem.training.scene_labels import class_count
from tandem.training.scene_pairs import labelled_pixels


def train_image_backbone(backbone: ImageBackbone, image_size: int, run: Run) -> None:
    """Trains it to label drawings, then freezes it: what follows never pays for a convolution."""
    recipe, step_count = run.recipe, run.recipe.backbone_step_count
    head = nn.Linear(backbone.project.out_features, class_count())
    backbone.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
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
    for number, (pixels_BHWC, classes_BR) in enumerate(batches, start=done + 1):
        with torch.autocast("cpu", torch.bfloat16):
            logits_BRC = head(backbone.tokens(pixels_BHWC))
        loss = labelling_loss(logits_BRC, classes_BR)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        step(optimiser, recipe.gradient_clip_norm)
        schedule.step()
        if number % 10 == 0 or number == step_count:
            drawn = classes_BR > 0
            right = (logits_BRC.argmax(-1) == classes_BR)[drawn].float().mean().item()
            note = f"loss {loss.item():.3f}, drawings named right {right:.1%}"
            run.progress("backbone", number, step_count, note)
        run.keep("backbone", number, modules, optimiser, schedule)
    backbone.eval().requires_grad_(False)


@torch.inference_mode()
def image_tokens(
    backbone: nn.Module, families: Sequence[tuple[Scene, ...]], progress: Progress, stage: str
) -> Tensor:
    """Returns the image tokens of every scene, family after family, float16 [N, R, D]."""
    rows = []
    for number in range(0, len(families), 16):
        scenes = [scene for family in families[number : number + 16] for scene in family]
        pixels_BHWC = torch.from_numpy(np.stack([scene_pixels(scene) for scene in scenes]))
        with torch.autocast("cpu", torch.bfloat16):
            rows.append(backbone(pixels_BHWC))
        if number % 160 == 0:
            progress(stage, number, len(families), "")
    return torch.cat(rows)
