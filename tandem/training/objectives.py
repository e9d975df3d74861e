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
    sampled_triplet_loss,
)
from tandem.training.mined_negatives import MinedNegatives, nearest_wrong
from tandem.training.pair_pool import PairPool, TextBatch
from tandem.training.recipes import Recipe

_MINING_BATCH_SIZE = 256


class Objectives:
    """One method a use of the model; each call draws anew from the one generator of batches."""

    def __init__(
        self, model: JointModel, pool: PairPool, rng: random.Random, cls_id: int, recipe: Recipe
    ) -> None:
        self._model, self._pool, self._rng = model, pool, rng
        self._cls_id, self._recipe = cls_id, recipe
        self.mined: MinedNegatives | None = None
        """What ance_loss draws from and ce_loss may; None before the first mining."""

    def loss(self, use: str, round_number: int) -> Tensor:
        """Returns a micro-batch's loss of one use, named as in Recipe.uses_in_order."""
        return {"be": self.be_loss, "ce": self.ce_loss, "ance": self.ance_loss}[use](round_number)

    def be_loss(self, round_number: int) -> Tensor:
        """Returns the loss of embedding pairs; softmax in the first rounds, then triplet."""
        recipe = self._recipe
        batch = self._pool.match_batch(self._rng, recipe.be_batch_size)
        texts_BD, images_BD = self._embeddings(batch.texts, batch.tokens)
        if round_number <= recipe.softmax_round_count:
            return in_batch_softmax_loss(texts_BD, images_BD, recipe.softmax_temperature)
        return batch_hard_triplet_loss(texts_BD, images_BD, batch.groups, recipe.margin)

    def ce_loss(self, round_number: int) -> Tensor:
        """Returns the loss of telling matches from mismatches, siblings' after the warm-up."""
        recipe = self._recipe
        is_warm = round_number > recipe.random_negative_round_count
        sibling_share = recipe.sibling_negative_share if is_warm else 0.0
        pairs = self._pool.pair_batch(
            self._rng,
            recipe.ce_family_count,
            sibling_share,
            self.mined,
            recipe.mined_negative_share,
        )
        with torch.autocast("cpu", torch.bfloat16):
            logits_B = self._model.match_logits(pairs.texts.ids, pairs.texts.mask, pairs.tokens)
        return pair_classification_loss(logits_B, pairs.matches)

    def ance_loss(self, round_number: int) -> Tensor:
        """Returns the loss of embedding pairs among mined negatives."""
        recipe = self._recipe
        assert self.mined is not None, "the recipe's order has no such step before the first mining"
        batch = self._pool.triplet_batch(
            self._rng, recipe.ance_batch_size, recipe.ance_negative_count, self.mined
        )
        texts_CD, images_CD = self._embeddings(batch.texts, batch.tokens)
        shape = (-1, 1 + recipe.ance_negative_count, recipe.width)
        return sampled_triplet_loss(texts_CD.view(shape), images_CD.view(shape), recipe.margin)

    def mine(self, groups_N: Tensor, round_number: int) -> MinedNegatives:
        """Returns the nearest wrong ones by today's weights, one caption drawn for each picture.

        What is drawn follows from seed and round, and leaves the generator of batches alone.
        """
        recipe = self._recipe
        rng = random.Random(f"mining/{recipe.seed}/{round_number}")
        texts, images = [], []
        self._model.eval()
        with torch.no_grad():
            for batch, tokens_BRD in self._pool.in_order(rng, _MINING_BATCH_SIZE):
                texts_BD, images_BD = self._embeddings(batch, tokens_BRD)
                texts.append(texts_BD)
                images.append(images_BD)
            mined = nearest_wrong(
                torch.cat(texts), torch.cat(images), groups_N, recipe.mined_neighbour_count
            )
        self._model.train()
        self._model.image_backbone.eval()
        return mined

    def _embeddings(self, texts: TextBatch, tokens_BRD: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            return (
                self._model.embed_texts(texts.ids, texts.mask),
                self._model.embed_images(tokens_BRD, self._cls_id),
            )
