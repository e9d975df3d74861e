"""Trains a network of the zoo, as train.py does a joint model.

A round is one step by the hinges of its batch, and by what the network's paper adds to them. All
networks see the same batches of the same image tokens, which a frozen backbone gives once.

Shapes: N dev pictures with a text each.
"""

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from tandem.evaluation.metrics import recall_at
from tandem.modeling.two_towers import TwoTowers
from tandem.training.data.batches import MatchBatch, tokenize
from tandem.training.data.caption_tokenizer import train_tokenizer
from tandem.training.data.pair_pool import PairPool
from tandem.training.dev_recall import DevRecall, DevSet, mean_recall
from tandem.training.first_recall import FirstRecall
from tandem.training.optimisation import (
    check_loss,
    recipe_optimiser,
    step,
    warm_up_then_decay,
)
from tandem.training.recipes.recipe import Recipe, Towers, ZooRecipe, of_kind
from tandem.training.runs.loss_curve import CurvePoint, LossCurve
from tandem.training.runs.run import Run, restore
from tandem.training.sources.source import TrainingData, TrainingSource
from tandem.training.stages.rounds import made_by
from tandem.training.starting_model import starting_model
from tandem.zoo.checkpoint import save_zoo_checkpoint
from tandem.zoo.config import ZooConfig
from tandem.zoo.network import Lesson, ZooNetwork
from tandem.zoo.word_readers import TransformerWords
from tandem.zoo.zoo_model import ZooModel

ZOO_STAGE = "zoo"
_SCORED_AT_ONCE = 8


def train_zoo(
    model: ZooModel, data: TrainingData, tokenizer: Tokenizer, run: Run
) -> tuple[FirstRecall, DevRecall]:
    """Trains the recipe's network, and keeps the best checkpoint by dev mean recall.

    Returns the recalls before the first round, and those of the best checkpoint.
    """
    texts = tokenize(tokenizer, data.dev_captions, model.config.max_text_tokens)
    images = data.dev.tokens(model.image_backbone, run, "dev tokens")
    dev = run.compute.put(DevSet(texts, *images.of(range(len(data.dev_captions)))))
    before = zoo_recall(model.network, dev)
    pool = PairPool(
        data.pairs,
        data.train.tokens(model.image_backbone, run, "image tokens"),
        tokenizer,
        model.config.max_text_tokens,
        run.recipe.view_count,
    )
    best = _train_rounds(model, pool, dev, tokenizer, run)
    return FirstRecall(before, len(dev.tokens), len(dev.tokens)), best


def starting_zoo_model(
    recipe: Recipe, source: TrainingSource, init: Path
) -> tuple[ZooModel, Tokenizer]:
    """Returns the recipe's model before its first step, with its tokenizer.

    The image backbone, the vocabulary and BERT's layers are those that two towers of this recipe
    begin with; the network begins with random weights.
    """
    assert isinstance(recipe, ZooRecipe), "others have no network of the zoo"
    towers, tokenizer = starting_model(
        of_kind(Towers, recipe),
        init,
        lambda: train_tokenizer(source.texts(recipe), recipe.vocabulary_size),
    )
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
def zoo_recall(network: ZooNetwork, dev: DevSet) -> DevRecall:
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


def _train_rounds(
    model: ZooModel, pool: PairPool, dev: DevSet, tokenizer: Tokenizer, run: Run
) -> DevRecall:
    recipe, network = run.recipe, model.network
    assert isinstance(recipe, ZooRecipe), "the network is of the zoo"
    groups = zoo_groups(network, recipe)
    optimiser = recipe_optimiser(groups, recipe.head_learning_rate, recipe)
    schedule = warm_up_then_decay(
        optimiser, recipe.round_count, recipe.warm_up_step_count, recipe.learning_rate_decay
    )
    rng = random.Random(f"zoo/{recipe.seed}")
    best: DevRecall | None = None
    done = 0
    modules: dict[str, nn.Module] = {"network": network}
    if state := run.found(ZOO_STAGE):
        restore(state, modules, optimiser, schedule, rng)
        done = state.step
        best = DevRecall(**state.best) if state.best else None
    run.progress(ZOO_STAGE, done, recipe.round_count, "")
    with closing(LossCurve(run.folder, done, run.seconds())) as curve:
        for number in range(done + 1, recipe.round_count + 1):
            place = run.place(ZOO_STAGE, number, recipe.round_count)
            network.train()
            optimiser.zero_grad(set_to_none=True)
            batch = run.compute.put(pool.match_batch(rng, recipe.be_batch_size))
            with run.compute.autocast():
                loss = zoo_loss(network, batch, recipe, number)
            loss.backward()
            with place.named():
                check_loss(recipe.zoo_model, loss.item())
                step(optimiser, recipe.gradient_clip_norm)
            rate = float(schedule.get_last_lr()[0])
            schedule.step()
            recall: DevRecall | None = None
            if recipe.measures_after(number):
                recall = zoo_recall(model.network, dev)
                run.progress(ZOO_STAGE, number, recipe.round_count, f"dev {recall}")
                if best is None or recall.score > best.score:
                    best = recall
                    with place.named():
                        save_zoo_checkpoint(
                            run.folder,
                            model,
                            tokenizer,
                            made_by(run, number, recall),
                            trained_pictures=run.trained_pictures,
                        )
            losses = {"be": loss.item()}
            curve.add(CurvePoint(number, losses, rate, run.seconds(), recall))
            if number % 10 == 0:
                run.progress(ZOO_STAGE, number, recipe.round_count, f"loss {loss.item():.3f}")
            run.keep(ZOO_STAGE, number, modules, optimiser, schedule, rng, best)
    assert best is not None, "the last round is always scored"
    return best


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
    published = {id(p) for words in _transformers(network) for p in words.trunk.parameters()}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for each in network.parameters():
        if each.requires_grad:
            groups.setdefault((id(each) in published, each.ndim >= 2), []).append(each)
    return [
        {
            "params": parameters,
            "lr": recipe.learning_rate if is_published else recipe.head_learning_rate,
            "weight_decay": recipe.weight_decay if is_matrix else 0.0,
        }
        for (is_published, is_matrix), parameters in groups.items()
    ]


def _transformers(network: ZooNetwork) -> list[TransformerWords]:
    return [each for each in network.modules() if isinstance(each, TransformerWords)]


def _recall(scores_NN: Tensor, k: int) -> float:
    """Returns R@k of the diagonal in percent; an equal score counts as before it."""
    ranks_N = (scores_NN >= scores_NN.diagonal()[:, None]).sum(1)
    return recall_at(ranks_N.tolist(), k).percent
