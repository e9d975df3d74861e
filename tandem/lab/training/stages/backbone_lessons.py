"""Defines what teaches an image backbone before the rounds.

Scenes have a label for every drawing. Other corpora have only their captions: no encoder can
distinguish what a frozen backbone gives equal tokens, so pixels go through backbone and encoder,
and the gradient of the in-batch softmax flows back through both.

Shapes: B rows, H W pixels, R image tokens, C classes, D width.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from tandem.lab.training.data.batches import tokenize
from tandem.lab.training.data.pair_pool import PairSource, draw_families, draw_member
from tandem.lab.training.losses import in_batch_softmax_loss, labelling_loss
from tandem.lab.training.optimisation import recipe_groups
from tandem.lab.training.recipes.recipe import Rounds
from tandem.lab.training.runs.run import Run
from tandem.lab.training.sources.scene_pairs import class_count, labelled_pixels
from tandem.model_io.texts.special_tokens import special_tokens
from tandem.modeling.image_sources.image_backbone import ImageBackbone
from tandem.modeling.image_sources.vision_tower import VisionTower
from tandem.modeling.joint_model import JointModel


class LabelLesson:
    """Names the drawing under each image token by a linear head, thrown away afterwards."""

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


class PairLesson:
    """Trains backbone and BE to embed a caption near its picture."""

    loss_name = "BE"

    def __init__(
        self,
        model: JointModel,
        pairs: PairSource,
        pixels_of: Callable[[int], NDArray[np.uint8]],
        tokenizer: Tokenizer,
        run: Run,
    ) -> None:
        """`pixels_of` gives the uint8 [H, W, 3] of a picture of `pairs`.

        Raises ValueError for a run without BE steps, and for a backbone that does not learn.
        """
        if not run.recipe.trains_be:
            raise ValueError(
                "the image backbone learns together with the BE, and this run only trains the CE; "
                "begin with a BE or a joint model, take another image source, or set the "
                "backbone's steps to 0"
            )
        if not isinstance(model.image_backbone, ImageBackbone | VisionTower):
            raise ValueError(
                f"image tokens of {model.config.image_source} come from nothing that learns here; "
                "set the backbone's steps to 0"
            )
        self._model, self.backbone, self._pairs = model, model.image_backbone, pairs
        self._pixels_of, self._tokenizer = pixels_of, tokenizer
        assert isinstance(run.recipe, Rounds), "others keep their backbone"
        self._recipe, self._compute = run.recipe, run.compute
        self.rng = random.Random(f"backbone/{run.recipe.seed}")
        self.modules: Mapping[str, nn.Module] = {
            "backbone": self.backbone,
            "encoder": model.joint_encoder,
        }

    def parameter_groups(self) -> list[dict[str, Any]]:
        recipe = self._recipe
        encoder = recipe_groups(self._model.joint_encoder, recipe)
        return [
            *({"lr": recipe.learning_rate, **group} for group in encoder),
            {"params": list(self.backbone.parameters()), "lr": recipe.backbone_learning_rate},
        ]

    def losses(self, done_step_count: int) -> Iterator[Tensor]:
        recipe, compute = self._recipe, self._compute
        cls_id = special_tokens(self._tokenizer).cls_id
        length = self._model.config.max_text_tokens
        for _ in range(done_step_count, recipe.backbone_step_count):
            families = draw_families(self._pairs, self.rng, recipe.backbone_batch_size)
            members = [draw_member(self._pairs, family, self.rng) for family in families]
            captions = [self._pairs.caption(member, self.rng) for member in members]
            texts = compute.put(tokenize(self._tokenizer, captions, length))
            pixels = np.stack([self._pixels_of(member) for member in members])
            pixels_BHWC = compute.put(torch.from_numpy(pixels))
            with compute.autocast():
                texts_BD = self._model.embed_texts(texts.ids, texts.mask)
                images_BD = self._model.embed_images(self.backbone.tokens(pixels_BHWC), cls_id)
            self._last = in_batch_softmax_loss(texts_BD, images_BD, recipe.softmax_temperature)
            yield self._last

    def note(self) -> str:
        return f"BE loss {self._last.item():.3f}"


BackboneLesson = LabelLesson | PairLesson
