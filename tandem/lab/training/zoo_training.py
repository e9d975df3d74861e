"""Trains a network of the zoo, as train.py does a joint model.

A round is one step by the hinges of its batch, and by what the network's paper adds to them. All
networks see the same batches of the same image tokens, which a frozen backbone gives once.

Shapes: N dev pictures with a text each.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from tandem.lab.evaluation.metrics import recall_at
from tandem.lab.training.data.batches import ImageTextBatch, MatchBatch, tokenize
from tandem.lab.training.data.mined_negatives import MinedNegatives
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.dev_recall import DevRecall, mean_recall
from tandem.lab.training.first_recall import FirstRecall
from tandem.lab.training.optimisation import (
    check_loss,
    rated_groups,
    recipe_optimiser,
    recipe_schedule,
    step,
)
from tandem.lab.training.recipes.recipe import Recipe, Towers, ZooRecipe, of_kind
from tandem.lab.training.runs.run import Run, StepPlace
from tandem.lab.training.sources.source import TrainingData
from tandem.lab.training.stages.rounds import train_in_rounds
from tandem.lab.training.starting_model import starting_model
from tandem.lab.zoo.checkpoint import save_zoo_checkpoint
from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import Lesson, ZooNetwork
from tandem.lab.zoo.word_readers import TransformerWords
from tandem.lab.zoo.zoo_model import ZooModel
from tandem.modeling.towers.two_towers import TwoTowers

_SCORED_AT_ONCE = 8


def train_zoo(
    model: ZooModel, data: TrainingData, tokenizer: Tokenizer, run: Run
) -> tuple[FirstRecall, DevRecall]:
    """Trains the recipe's network, and keeps the best checkpoint by dev mean recall.

    Returns the recalls before the first round, and those of the best checkpoint.
    """
    texts = tokenize(tokenizer, data.dev_captions, model.config.max_text_tokens)
    images = data.dev.tokens(model.image_backbone, run, "dev tokens")
    dev = run.compute.put(ImageTextBatch(texts, *images.of(range(len(data.dev_captions)))))
    before = zoo_recall(model.network, dev)
    pool = PairPool(
        data.pairs,
        data.train.tokens(model.image_backbone, run, "image tokens"),
        tokenizer,
        model.config.max_text_tokens,
        run.recipe.view_count,
    )
    best = train_in_rounds(ZooRounds(model, pool, dev, tokenizer, run), run)
    return FirstRecall(before, len(dev.tokens), len(dev.tokens)), best


def starting_zoo_model(
    recipe: Recipe, init: Path, learn_vocabulary: Callable[[], Tokenizer]
) -> tuple[ZooModel, Tokenizer]:
    """Returns the recipe's model before its first step, with its tokenizer.

    The image backbone, the vocabulary and BERT's layers are those that two towers of this recipe
    begin with; the network begins with random weights.
    """
    assert isinstance(recipe, ZooRecipe), "others have no network of the zoo"
    towers, tokenizer = starting_model(of_kind(Towers, recipe), init, learn_vocabulary)
    inputs = replace(
        towers.config,
        has_two_towers=False,
        embedding_width=None,
        matcher_width=0,
        matcher_has_towers=False,
    )
    model = ZooModel(
        ZooConfig(
            model=recipe.zoo_model,
            inputs=inputs,
            text_reader=recipe.zoo_text_reader,
            width=recipe.embedding_width or recipe.width,
        )
    )
    model.image_backbone = towers.image_backbone.eval().requires_grad_(False)
    assert isinstance(towers.joint_encoder, TwoTowers), "the recipe has two towers"
    for words in _transformers(model.network):
        words.trunk.load_state_dict(towers.joint_encoder.text.tower.state_dict())
        words.trunk.requires_grad_(not recipe.has_frozen_text)
    return model, tokenizer


@torch.inference_mode()
def zoo_recall(network: ZooNetwork, dev: ImageTextBatch) -> DevRecall:
    """Returns the dev recalls of the network's embeddings, of its pair scores, or of both."""
    network.eval()
    texts = network.read_texts(dev.texts.ids, dev.texts.mask)
    rows, pictures = [], []
    for tokens, mask in zip(
        dev.tokens.split(_SCORED_AT_ONCE), dev.image_mask.split(_SCORED_AT_ONCE), strict=True
    ):
        images = network.read_images(tokens, mask)
        if network.scores_pairs:
            rows.append(network.every(images, texts))
        if network.embeds:
            pictures.append(network.embedding(images))
    recall = DevRecall(None, None, None)
    if network.embeds:
        cosines_NN = network.embedding(texts) @ torch.cat(pictures).T
        recall = replace(
            recall,
            be_r1=_recall(cosines_NN, 1),
            be_r10=_recall(cosines_NN, 10),
            be_mean_recall=mean_recall(cosines_NN),
        )
    if network.scores_pairs:
        scores_NN = torch.cat(rows).T
        recall = replace(recall, ce_r1=_recall(scores_NN, 1), ce_mean_recall=mean_recall(scores_NN))
    return recall


class ZooRounds:
    """Takes one step a round, by the hinges of its batch and what the network's paper adds."""

    stage = "zoo"
    mined: MinedNegatives | None = None

    def __init__(
        self, model: ZooModel, pool: PairPool, dev: ImageTextBatch, tokenizer: Tokenizer, run: Run
    ) -> None:
        recipe = run.recipe
        assert isinstance(recipe, ZooRecipe), "the network is of the zoo"
        self._model, self._pool, self._dev, self._tokenizer = model, pool, dev, tokenizer
        self._recipe, self._run = recipe, run
        groups = zoo_groups(model.network, recipe)
        self.optimiser = recipe_optimiser(groups, recipe.head_learning_rate, recipe)
        self.schedule = recipe_schedule(self.optimiser, recipe.round_count, recipe)
        self.rng = random.Random(f"zoo/{recipe.seed}")
        self.modules: Mapping[str, nn.Module] = {"network": model.network}

    def learn(self, round_number: int, place: StepPlace) -> dict[str, float]:
        """Takes the round's step; the curve has its loss as the BE's."""
        run, recipe, network = self._run, self._recipe, self._model.network
        network.train()
        self.optimiser.zero_grad(set_to_none=True)
        batch = run.compute.put(self._pool.match_batch(self.rng, recipe.be_batch_size))
        with run.compute.autocast():
            loss = zoo_loss(network, batch, recipe, round_number)
        loss.backward()
        with place.named():
            check_loss(recipe.zoo_model, loss.item())
            step(self.optimiser, recipe.gradient_clip_norm)
        return {"be": loss.item()}

    def recall(self) -> DevRecall:
        return zoo_recall(self._model.network, self._dev)

    def save(self, about: dict[str, object]) -> None:
        run = self._run
        save_zoo_checkpoint(
            run.folder, self._model, self._tokenizer, about, trained_pictures=run.trained_pictures
        )


def zoo_loss(network: ZooNetwork, batch: MatchBatch, recipe: ZooRecipe, number: int) -> Tensor:
    """Returns the loss of a round: the hinges of all pairs, and what the network's paper adds."""
    images = network.read_images(batch.tokens, batch.image_mask)
    texts = network.read_texts(batch.texts.ids, batch.texts.mask)
    takes_hardest = recipe.hinges == "hardest" and number > recipe.all_hinges_round_count
    lesson = Lesson(
        batch.texts.ids,
        batch.texts.mask,
        batch.image_mask,
        batch.groups,
        share_done=(number - 1) / recipe.round_count,
    )
    loss = network.ranking_loss(
        network.every(images, texts).float(),
        batch.groups,
        recipe.margin,
        takes_hardest=takes_hardest,
    )
    further = network.further_loss(images, texts, lesson)
    return loss if further is None else loss + further


def zoo_groups(network: ZooNetwork, recipe: ZooRecipe) -> list[dict[str, object]]:
    """Returns AdamW's groups: a published text encoder learns at a rate of its own."""
    published = [(words.trunk, recipe.learning_rate) for words in _transformers(network)]
    return rated_groups(network, published, recipe.head_learning_rate, recipe.weight_decay)


def _transformers(network: ZooNetwork) -> list[TransformerWords]:
    return [each for each in network.modules() if isinstance(each, TransformerWords)]


def _recall(scores_NN: Tensor, k: int) -> float:
    """Returns R@k of the diagonal in percent; an equal score counts as before it."""
    ranks_N = (scores_NN >= scores_NN.diagonal()[:, None]).sum(1)
    return recall_at(ranks_N.tolist(), k).percent
