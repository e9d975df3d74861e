"""Computes the loss of one micro-batch for each use: draws it, runs the model, compares.

Shapes: B rows, D width.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tandem.lab.training.data.batches import (
    Batch,
    ImageTextBatch,
    LengthPart,
    RuledTexts,
    Splitter,
    by_length,
)
from tandem.lab.training.data.mined_negatives import MinedNegatives, nearest_wrong
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.dev_recall import Trained
from tandem.lab.training.losses import (
    batch_hard_triplet_loss,
    in_batch_softmax_loss,
    masked_word_loss,
    pair_classification_loss,
    pair_triplet_loss,
    sampled_triplet_loss,
)
from tandem.lab.training.recipes.recipe import JointRecipe, Rounds
from tandem.lab.training.runs.run import Run
from tandem.lab.training.stages.masked_words import mask_id, masked, with_hidden_words
from tandem.model_io.texts.special_tokens import SpecialTokens, special_tokens
from tandem.modeling.joint_model import JointModel
from tandem.modeling.towers.two_towers import TwoTowers

_MINING_BATCH_SIZE = 256
# A batch's texts have 11 tokens on average, its longest 24. Split in two by length, a step took 12
# to 15 % less CPU time; in four parts, whose matrix products are smaller, 8 to 13 %. Measured over
# fourteen rounds while other trainings ran; the gain over a whole run was not measured.
_LENGTH_PART_COUNT = 2


class Objectives:
    """Has one method for each use of the model; every call draws a new batch from `rng`."""

    def __init__(
        self, model: Trained, pool: PairPool, rng: random.Random, tokenizer: Splitter, run: Run
    ) -> None:
        self._model, self._pool, self._rng = model, pool, rng
        self._special, self._mask_id = SpecialTokens(0, 0, 0), 0  # which a published model knows
        if not isinstance(tokenizer, RuledTexts):
            self._special, self._mask_id = special_tokens(tokenizer), mask_id(tokenizer)
        assert isinstance(run.recipe, Rounds), "others have no rounds of BE and CE"
        self._recipe: Rounds = run.recipe
        self._compute, self._processes = run.compute, run.processes
        self.mined: MinedNegatives | None = None
        """What ance_loss draws from and ce_loss may draw from; None before the first mining."""

    @property
    def _joint(self) -> JointRecipe:
        assert isinstance(self._recipe, JointRecipe), "only a joint model learns to match in rounds"
        return self._recipe

    def be_loss(self, round_number: int) -> Tensor:
        """Returns the BE's loss: in-batch softmax in the first rounds, then batch-hard triplet."""
        recipe = self._recipe
        batch = self._pool.match_batch(self._rng, recipe.be_batch_size)
        texts = with_hidden_words(batch.texts, recipe.word_drop_share, self._mask_id, self._rng)
        batch = replace(batch, texts=texts)
        own = self._taken(batch)
        texts_BD, images_BD = map(self._processes.gathered, self._embeddings(own))
        if round_number <= recipe.softmax_round_count:
            encoder = self._model.joint_encoder
            temperature: float | Tensor = recipe.softmax_temperature
            if recipe.learns_temperature and isinstance(encoder, TwoTowers):
                temperature = encoder.temperature
            return in_batch_softmax_loss(texts_BD, images_BD, temperature)
        return batch_hard_triplet_loss(
            texts_BD, images_BD, self._compute.put(batch.groups), recipe.margin
        )

    def ce_loss(self, round_number: int) -> Tensor:
        """Returns the CE's loss on matches and mismatches; siblings mismatch after the warm-up."""
        recipe = self._joint
        is_warm = round_number > recipe.random_negative_round_count
        sibling_share = recipe.sibling_negative_share if is_warm else 0.0
        pairs = self._taken(
            self._pool.pair_batch(
                self._rng,
                recipe.ce_family_count,
                sibling_share,
                self.mined,
                recipe.mined_negative_share,
            )
        )
        parts = by_length(pairs.texts, _LENGTH_PART_COUNT)
        with self._compute.autocast():
            logits_B = torch.cat(
                [
                    self._model.match_logits(
                        part.texts.ids,
                        part.texts.mask,
                        pairs.tokens[part.rows],
                        pairs.image_mask[part.rows],
                    )
                    for part in parts
                ]
            )
        if recipe.pair_loss == "triplet":
            in_order_B = logits_B[_rows(parts).argsort()]
            return pair_triplet_loss(self._processes.gathered(in_order_B), recipe.pair_margin)
        return pair_classification_loss(logits_B, pairs.matches[_rows(parts)])

    def mlm_loss(self, round_number: int) -> Tensor:
        """Returns the masked language modelling loss: masked words from their text and image."""
        recipe, model = self._joint, self._model
        assert isinstance(model, JointModel), "the recipe of others has no such steps"
        drawn = self._pool.match_batch(self._rng, recipe.mlm_batch_size)
        whole = masked(drawn, recipe.mlm_masked_share, self._mask_id, self._special, self._rng)
        # All processes draw the same batch, so each knows the count that the mean is over.
        masked_count = int(whole.is_masked.sum()) / self._processes.count
        batch = self._taken(whole)
        logits, words = [], []
        with self._compute.autocast():
            for part in by_length(batch.texts, _LENGTH_PART_COUNT):
                ids_PT = part.texts.ids
                at_PT = batch.is_masked[part.rows, : ids_PT.shape[1]]
                logits.append(
                    model.word_logits(
                        ids_PT,
                        part.texts.mask,
                        batch.tokens[part.rows],
                        at_PT,
                        batch.image_mask[part.rows],
                    )
                )
                words.append(batch.words[part.rows, : ids_PT.shape[1]][at_PT])
        return masked_word_loss(torch.cat(logits), torch.cat(words), masked_count)

    def ance_loss(self, round_number: int) -> Tensor:
        """Returns the triplet loss of pairs against mined negatives (ANCE)."""
        recipe = self._recipe
        assert self.mined is not None, "the recipe's order has no such step before the first mining"
        batch = self._taken(
            self._pool.triplet_batch(
                self._rng, recipe.ance_batch_size, recipe.ance_negative_count, self.mined
            )
        )
        texts_CD, images_CD = self._embeddings(batch)
        shape = (-1, 1 + recipe.ance_negative_count, texts_CD.shape[-1])
        return sampled_triplet_loss(texts_CD.view(shape), images_CD.view(shape), recipe.margin)

    def mine(self, groups_N: Tensor, round_number: int) -> MinedNegatives:
        """Returns the nearest wrong texts and images by the present weights; one caption a picture.

        A generator of its own draws the captions. Every process mines everything itself.
        """
        recipe = self._recipe
        rng = random.Random(f"mining/{recipe.seed}/{round_number}")
        texts, images = [], []
        self._model.eval()
        with torch.no_grad():
            for batch in self._pool.in_order(rng, _MINING_BATCH_SIZE):
                texts_BD, images_BD = self._embeddings(self._compute.put(batch))
                texts.append(texts_BD)
                images.append(images_BD)
            mined = nearest_wrong(
                torch.cat(texts),
                torch.cat(images),
                self._compute.put(groups_N),
                recipe.mined_neighbour_count,
            )
        self._model.train()
        self._model.image_backbone.eval()
        return mined

    def _taken(self, batch: Batch) -> Batch:
        """Returns this process's part of a batch that all of them draw, on the device."""
        return self._compute.put(self._processes.part(batch))

    def _embeddings(self, batch: ImageTextBatch) -> tuple[Tensor, Tensor]:
        parts = by_length(batch.texts, _LENGTH_PART_COUNT)
        with self._compute.autocast():
            texts_BD = torch.cat(
                [self._model.embed_texts(part.texts.ids, part.texts.mask) for part in parts]
            )
            return (
                texts_BD[_rows(parts).argsort()],
                self._model.embed_images(batch.tokens, self._special.cls_id, batch.image_mask),
            )


def _rows(parts: Sequence[LengthPart]) -> Tensor:
    return torch.cat([part.rows for part in parts])
