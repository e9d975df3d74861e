"""Teaches an image backbone to name the drawing under each image token of a scene.

Shapes: B rows, H W pixels, R image tokens, C classes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from tandem.lab.training.losses import labelling_loss
from tandem.lab.training.recipes.recipe import Rounds
from tandem.lab.training.runs.run import Run
from tandem.lab.training.sources.scene_pairs import class_count, labelled_pixels
from tandem.modeling.image_sources.image_backbone import ImageBackbone


class LabelLesson:
    """Classifies image tokens with a linear head, which is thrown away afterwards."""

    loss_name = "labelling"
    rng = None

    def __init__(self, backbone: ImageBackbone, image_size: int, run: Run) -> None:
        self.backbone, self._image_size = backbone, image_size
        assert isinstance(run.recipe, Rounds), "others keep their backbone"
        self._recipe, self._compute = run.recipe, run.compute
        self._head = nn.Linear(backbone.project.out_features, class_count()).to(run.compute.device)
        self.modules: Mapping[str, nn.Module] = {"backbone": backbone, "head": self._head}

    def parameter_groups(self) -> list[dict[str, Any]]:
        parameters = [*self.backbone.parameters(), *self._head.parameters()]
        return [{"params": parameters, "lr": self._recipe.backbone_learning_rate}]

    def losses(self, done_step_count: int) -> Iterator[Tensor]:
        """Yields the cross-entropy of each batch of fresh scenes after those that are done."""
        recipe, compute = self._recipe, self._compute
        batches = labelled_pixels(
            recipe.seed,
            recipe.backbone_batch_size,
            recipe.backbone_step_count,
            self._image_size,
            start=done_step_count,
        )
        for pixels, classes in batches:
            pixels_BHWC, classes_BR = compute.put(pixels), compute.put(classes)
            with compute.autocast():
                logits_BRC = self._head(self.backbone.tokens(pixels_BHWC))
            loss = labelling_loss(logits_BRC, classes_BR)
            self._last = (logits_BRC, classes_BR, loss)
            yield loss

    def note(self) -> str:
        logits_BRC, classes_BR, loss = self._last
        is_right = (logits_BRC.argmax(-1) == classes_BR)[classes_BR > 0]
        share = is_right.float().mean().item()
        return f"loss {loss.item():.3f}, drawings named right {share:.1%}"
