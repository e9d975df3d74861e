"""What one micro-batch costs: drawn from the pool, run through the model, compared.

Shapes: B rows, R image tokens, D width.
"""

import random

import torch
from torch import Tensor

from tandem.modeling.joint_model import JointModel
from tandem.training.losses import (
    batch_hard_triplet_loss,
    in_batch_softmax_loss,
    pair_classification_loss,
)
from tandem.training.recipes import Recipe
from tandem.training.scene_batches import ScenePool


class Objectives:
    """One method a use of the model; each call draws anew from the one generator of batches."""

    def __init__(
        self, model: JointModel, pool: ScenePool, rng: random.Random, cls_id: int, recipe: Recipe
    ) -> None:
        self._model, self._pool, self._rng = model, pool, rng
        self._cls_id, self._recipe = cls_id, recipe

    def be_loss(self, round_number: int) -> Tensor:
        """Returns the loss of embedding pairs; softmax in the first rounds, then triplet."""
        recipe = self._recipe
        texts, tokens_BRD = self._pool.be_batch(self._rng, recipe.be_batch_size)
        with torch.autocast("cpu", torch.bfloat16):
            texts_BD = self._model.embed_texts(texts.ids, texts.mask)
            images_BD = self._model.embed_images(tokens_BRD, self._cls_id)
        if round_number <= recipe.softmax_round_count:
            return in_batch_softmax_loss(texts_BD, images_BD, recipe.softmax_temperature)
        groups_B = torch.arange(len(texts_BD))  # every row is of another family
        return batch_hard_triplet_loss(texts_BD, images_BD, groups_B, recipe.margin)

    def ce_loss(self, round_number: int) -> Tensor:
        """Returns the loss of telling matches from mismatches, siblings' after the warm-up."""
        recipe = self._recipe
        is_warm = round_number > recipe.random_negative_round_count
        sibling_share = recipe.sibling_negative_share if is_warm else 0.0
        pairs = self._pool.ce_batch(self._rng, recipe.ce_family_count, sibling_share)
        with torch.autocast("cpu", torch.bfloat16):
            logits_B = self._model.match_logits(pairs.texts.ids, pairs.texts.mask, pairs.tokens)
        return pair_classification_loss(logits_B, pairs.matches)
