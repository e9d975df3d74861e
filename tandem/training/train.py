"""Trains a joint model on scenes, from a recipe to a checkpoint folder.

Read it top to bottom: learn what the drawings are, compute every training scene's image tokens
once, then take turns: a batch-hard triplet step for the bi-encoder, a pair classification step for
the cross-encoder, on one set of weights with one optimiser (Geigle et al. 2022, 3.3).

Shapes: B rows, R image tokens, D width, C classes.
"""

import platform
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from tandem.corpus.nouns import LANGUAGES
from tandem.corpus.scene import Scene
from tandem.corpus.scene_captions import captions_of
from tandem.corpus.scene_drawing import scene_pixels
from tandem.corpus.scenes import Split, scene_families
from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.joint_model import ImageBackbone, JointModel
from tandem.training.caption_tokenizer import CLS, train_tokenizer
from tandem.training.dev_recall import DevRecall, dev_recall
from tandem.training.losses import (
    batch_hard_triplet_loss,
    in_batch_softmax_loss,
    labelling_loss,
    pair_classification_loss,
)
from tandem.training.recipes import Recipe
from tandem.training.scene_batches import ScenePool, TextBatch, labelled_pixels, tokenize
from tandem.training.scene_labels import class_count

# Called with the stage, the step reached, the steps there are, and what to show of it.
Progress = Callable[[str, int, int, str], None]

_WARM_UP_STEP_COUNT = 100
_TOKENIZER_FAMILY_COUNT = 2_000
# Far from any that pools and demos count up from, so that the dev scenes are nobody else's.
_DEV_FAMILY_START = 1_000_000


def train(recipe: Recipe, folder: Path, progress: Progress) -> DevRecall:
    """Trains by the recipe, keeps the best checkpoint by dev score, returns its recalls.

    `folder` gets the checkpoint. The same recipe on the same machine gives the same weights.
    Raises ValueError for a recipe without rounds.
    """
    if recipe.round_count < 1:
        raise ValueError(f"recipe {recipe.name} has no rounds, so there would be no checkpoint")
    start_time = time.monotonic()
    torch.manual_seed(recipe.seed)
    train_families = list(islice(scene_families("train", recipe.seed), recipe.pool_family_count))
    tokenizer = _learn_vocabulary(train_families, recipe)
    model = JointModel(
        JointConfig(
            vocabulary_size=tokenizer.get_vocab_size(),
            width=recipe.width,
            layer_count=recipe.layer_count,
            head_count=recipe.head_count,
        )
    )
    _train_backbone(model.image_backbone, recipe, progress)
    pool = ScenePool(
        train_families,
        _image_tokens(model.image_backbone, train_families, progress, "image tokens"),
        tokenizer,
    )
    best = _train_encoder(model, pool, tokenizer, recipe, folder, progress, start_time)
    progress("done", 1, 1, f"{best} in {time.monotonic() - start_time:,.0f} s")
    return best


def _learn_vocabulary(families: Sequence[tuple[Scene, ...]], recipe: Recipe) -> Tokenizer:
    texts = (
        text
        for family in families[:_TOKENIZER_FAMILY_COUNT]
        for scene in family
        for language in LANGUAGES
        for text in captions_of(scene, language)
    )
    return train_tokenizer(texts, recipe.vocabulary_size)


def _train_backbone(backbone: ImageBackbone, recipe: Recipe, progress: Progress) -> None:
    """Labelling drawings, then frozen: what follows never pays for a convolution again."""
    step_count = recipe.backbone_step_count
    head = nn.Linear(recipe.width, class_count())
    backbone.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimiser = AdamW(
        [*backbone.parameters(), *head.parameters()], lr=recipe.backbone_learning_rate
    )
    schedule = _warm_up_then_linear(optimiser, step_count)
    batches = labelled_pixels(recipe.seed, recipe.backbone_batch_size, step_count, 112)
    for step, (pixels_BHWC, classes_BR) in enumerate(batches, start=1):
        with torch.autocast("cpu", torch.bfloat16):
            logits_BRC = head(backbone.tokens(pixels_BHWC))
        loss = labelling_loss(logits_BRC, classes_BR)
        _step(loss, optimiser, schedule, recipe.gradient_clip_norm)
        if step % 10 == 0 or step == step_count:
            drawn = classes_BR > 0
            right = (logits_BRC.argmax(-1) == classes_BR)[drawn].float().mean().item()
            note = f"loss {loss.item():.3f}, drawings named right {right:.1%}"
            progress("backbone", step, step_count, note)
    backbone.eval().requires_grad_(False)


@torch.inference_mode()
def _image_tokens(
    backbone: ImageBackbone, families: Sequence[tuple[Scene, ...]], progress: Progress, stage: str
) -> Tensor:
    rows = []
    for number in range(0, len(families), 16):
        scenes = [scene for family in families[number : number + 16] for scene in family]
        pixels_BHWC = torch.from_numpy(np.stack([scene_pixels(scene) for scene in scenes]))
        with torch.autocast("cpu", torch.bfloat16):
            rows.append(backbone(pixels_BHWC))
        if number % 160 == 0:
            progress(stage, number, len(families), "")
    return torch.cat(rows)


def _train_encoder(
    model: JointModel,
    pool: ScenePool,
    tokenizer: Tokenizer,
    recipe: Recipe,
    folder: Path,
    progress: Progress,
    start_time: float,
) -> DevRecall:
    optimiser = AdamW(
        _decayed_groups(model.joint_encoder, recipe.weight_decay),
        recipe.learning_rate,
    )
    schedule = _warm_up_then_linear(optimiser, recipe.round_count)
    rng = random.Random(f"rounds/{recipe.seed}")
    cls_id = tokenizer.get_vocab()[CLS]
    dev_texts, dev_tokens_NRD = _dev_set(model.image_backbone, tokenizer, recipe, progress)
    best: DevRecall | None = None
    be_loss, ce_loss = torch.zeros(()), torch.zeros(())
    for round_number in range(1, recipe.round_count + 1):
        model.train()
        model.image_backbone.eval()

        texts, tokens_BRD = pool.be_batch(rng, recipe.be_batch_size)
        with torch.autocast("cpu", torch.bfloat16):
            texts_BD = model.embed_texts(texts.ids, texts.mask)
            images_BD = model.embed_images(tokens_BRD, cls_id)
        be_loss = _be_loss(texts_BD, images_BD, round_number, recipe)
        _step(be_loss, optimiser, None, recipe.gradient_clip_norm)

        is_warm = round_number > recipe.random_negative_round_count
        sibling_share = recipe.sibling_negative_share if is_warm else 0.0
        for _ in range(recipe.ce_steps_per_round):
            pairs = pool.ce_batch(rng, recipe.ce_family_count, sibling_share)
            with torch.autocast("cpu", torch.bfloat16):
                logits_B = model.match_logits(pairs.texts.ids, pairs.texts.mask, pairs.tokens)
            ce_loss = pair_classification_loss(logits_B, pairs.matches)
            _step(ce_loss, optimiser, None, recipe.gradient_clip_norm)
        schedule.step()  # once a round, as the paper's code does

        if round_number % 10 == 0:
            note = f"BE loss {be_loss.item():.3f}, CE loss {ce_loss.item():.3f}"
            progress("encoder", round_number, recipe.round_count, note)
        if round_number % recipe.dev_every_round_count == 0 or round_number == recipe.round_count:
            model.eval()
            with torch.autocast("cpu", torch.bfloat16):
                recall = dev_recall(model, dev_texts, dev_tokens_NRD, cls_id)
            progress("encoder", round_number, recipe.round_count, f"dev {recall}")
            if best is None or recall.score > best.score:
                best = recall
                made_by = _made_by(recipe, round_number, recall, time.monotonic() - start_time)
                save_checkpoint(folder, model, tokenizer, made_by)
    assert best is not None, "the last round is always scored"
    return best


def _be_loss(texts_BD: Tensor, images_BD: Tensor, round_number: int, recipe: Recipe) -> Tensor:
    if round_number <= recipe.softmax_round_count:
        return in_batch_softmax_loss(texts_BD, images_BD, recipe.softmax_temperature)
    groups_B = torch.arange(len(texts_BD))  # every row is of another family
    return batch_hard_triplet_loss(texts_BD, images_BD, groups_B, recipe.margin)


def _dev_set(
    backbone: ImageBackbone, tokenizer: Tokenizer, recipe: Recipe, progress: Progress
) -> tuple[TextBatch, Tensor]:
    split: Split = "val"
    families = list(
        islice(scene_families(split, recipe.seed, _DEV_FAMILY_START), recipe.dev_family_count)
    )
    scenes = [scene for family in families for scene in family]
    texts = [
        captions_of(scene, LANGUAGES[number % len(LANGUAGES)])[0]
        for number, scene in enumerate(scenes)
    ]
    return tokenize(tokenizer, texts), _image_tokens(backbone, families, progress, "dev tokens")


def _step(loss: Tensor, optimiser: AdamW, schedule: LambdaLR | None, clip_norm: float) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    nn.utils.clip_grad_norm_(parameters, clip_norm)
    optimiser.step()
    if schedule:
        schedule.step()


def _decayed_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Matrices decay; biases and norms do not."""
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    others = [p for p in module.parameters() if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def _warm_up_then_linear(optimiser: AdamW, step_count: int) -> LambdaLR:
    """The papers start from pretrained weights and need no warm-up; from nothing one does."""
    warm_up = min(_WARM_UP_STEP_COUNT, max(1, step_count // 10))
    return LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm_up, max(0.0, (step_count - step) / step_count)),
    )


def _made_by(
    recipe: Recipe, round_number: int, recall: DevRecall, seconds: float
) -> dict[str, object]:
    return {
        "recipe": recipe.to_dict(),
        "round": round_number,
        "dev_recall_percent": asdict(recall),
        "training_seconds": round(seconds),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }
