"""What a step costs: parts by length are arithmetic saved, and nothing else."""

import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.records import scene_families
from tandem.lab.training.data.batches import LengthPart, TextBatch
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.data.pooled_images import HeldImages
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.recipes.recipe import PairLoss
from tandem.lab.training.sources.scene_pairs import ScenePairs
from tandem.lab.training.stages import objectives
from tandem.lab.training.stages.objectives import Objectives
from tests.support.modeling.tiny_checkpoint import tiny_model
from tests.support.training.small_runs import fresh_run

USES = ("be", "mlm", "ce", "ance")
FAMILIES = list(islice(scene_families("train", 1), 12))


def as_drawn(texts: TextBatch, _count: int) -> list[LengthPart]:
    """Returns one part: the whole batch, in its order and at its length."""
    return [LengthPart(torch.arange(len(texts.ids)), texts)]


def losses_and_gradients(
    folder: Path, round_number: int, pair_loss: PairLoss = "classification"
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Returns each use's loss over the same batches, and the gradient of their sum."""
    scenes = [scene for family in FAMILIES for scene in family]
    tokenizer = train_tokenizer((captions_of(each, "en")[0] for each in scenes), 300)
    model = tiny_model(vocabulary_size=tokenizer.get_vocab_size()).train()
    images = torch.rand(len(scenes), 49, 16, generator=torch.Generator().manual_seed(0))
    pool = PairPool(ScenePairs(FAMILIES), HeldImages(images.half()), tokenizer, 64)
    recipe = replace(
        tiny(1),
        width=16,
        be_batch_size=7,
        mlm_batch_size=7,
        ance_batch_size=5,
        ance_steps_per_round=1,
        mined_refresh_round_count=1,
        pair_loss=pair_loss,
    )
    asked = Objectives(model, pool, random.Random(3), tokenizer, fresh_run(recipe, folder))
    asked.mined = asked.mine(pool.groups(), round_number)
    losses = {use: getattr(asked, f"{use}_loss")(round_number) for use in USES}
    total = torch.stack(list(losses.values())).sum()
    return losses, list(torch.autograd.grad(total, list(model.joint_encoder.parameters())))


@pytest.mark.parametrize(("round_number", "pair_loss"), [(1, "classification"), (3, "triplet")])
def test_parts_by_length_give_the_loss_and_gradient_of_the_whole_batch(
    round_number: int, pair_loss: PairLoss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, gradients = losses_and_gradients(tmp_path / "parts", round_number, pair_loss)

    monkeypatch.setattr(objectives, "by_length", as_drawn)
    whole, whole_gradients = losses_and_gradients(tmp_path / "whole", round_number, pair_loss)
    assert min(whole.values()) > 0
    assert_close(parts, whole, rtol=1e-4, atol=1e-6)
    assert_close(gradients, whole_gradients, rtol=1e-4, atol=1e-6)
