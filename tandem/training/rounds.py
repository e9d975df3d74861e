"""The second stage: BE and CE take turns on one encoder (Geigle et al. 2022, 3.3).

Shapes: B rows, R image tokens, D width.
"""

import platform
import random
from contextlib import closing
from dataclasses import asdict
from statistics import fmean as mean

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.optim import AdamW

from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.joint_model import JointModel
from tandem.training.caption_tokenizer import CLS
from tandem.training.dev_recall import DevRecall, DevSet, dev_recall
from tandem.training.loss_curve import CurvePoint, LossCurve
from tandem.training.losses import (
    batch_hard_triplet_loss,
    in_batch_softmax_loss,
    pair_classification_loss,
)
from tandem.training.optimisation import decayed_groups, step, warm_up_then_linear
from tandem.training.recipes import Recipe
from tandem.training.run import Run, restore
from tandem.training.scene_batches import ScenePool


def train_rounds(
    model: JointModel, pool: ScenePool, dev: DevSet, tokenizer: Tokenizer, run: Run
) -> DevRecall:
    """Trains the joint encoder, keeps the best checkpoint by dev score, returns its recalls.

    A round is a batch-hard triplet step for the BE and pair classification steps for the CE, on one
    set of weights with one optimiser.
    """
    recipe, progress = run.recipe, run.progress
    optimiser = AdamW(
        decayed_groups(model.joint_encoder, recipe.weight_decay),
        recipe.learning_rate,
    )
    schedule = warm_up_then_linear(optimiser, recipe.round_count)
    rng = random.Random(f"rounds/{recipe.seed}")
    cls_id = tokenizer.get_vocab()[CLS]
    best: DevRecall | None = None
    modules = {"backbone": model.image_backbone, "encoder": model.joint_encoder}
    done = 0
    if state := run.found("encoder"):
        restore(state, modules, optimiser, schedule, rng)
        done = state.step
        best = DevRecall(**state.best) if state.best else None
    with closing(LossCurve(run.folder, done, run.seconds())) as curve:
        for round_number in range(done + 1, recipe.round_count + 1):
            model.train()
            model.image_backbone.eval()
            losses: dict[str, list[float]] = {}

            for _ in range(recipe.be_steps_per_round):
                texts, tokens_BRD = pool.be_batch(rng, recipe.be_batch_size)
                with torch.autocast("cpu", torch.bfloat16):
                    texts_BD = model.embed_texts(texts.ids, texts.mask)
                    images_BD = model.embed_images(tokens_BRD, cls_id)
                be_loss = _be_loss(texts_BD, images_BD, round_number, recipe)
                step(be_loss, optimiser, None, recipe.gradient_clip_norm)
                losses.setdefault("be", []).append(be_loss.item())

            is_warm = round_number > recipe.random_negative_round_count
            sibling_share = recipe.sibling_negative_share if is_warm else 0.0
            for _ in range(recipe.ce_steps_per_round):
                pairs = pool.ce_batch(rng, recipe.ce_family_count, sibling_share)
                with torch.autocast("cpu", torch.bfloat16):
                    logits_B = model.match_logits(pairs.texts.ids, pairs.texts.mask, pairs.tokens)
                ce_loss = pair_classification_loss(logits_B, pairs.matches)
                step(ce_loss, optimiser, None, recipe.gradient_clip_norm)
                losses.setdefault("ce", []).append(ce_loss.item())
            learning_rate = float(schedule.get_last_lr()[0])
            schedule.step()  # once a round, as the paper's code does

            recall: DevRecall | None = None
            if (
                round_number % recipe.dev_every_round_count == 0
                or round_number == recipe.round_count
            ):
                model.eval()
                with torch.autocast("cpu", torch.bfloat16):
                    recall = dev_recall(model, dev, cls_id, recipe)
                progress("encoder", round_number, recipe.round_count, f"dev {recall}")
                if best is None or recall.score > best.score:
                    best = recall
                    made_by = _made_by(recipe, round_number, recall, run.seconds())
                    save_checkpoint(run.folder, model, tokenizer, made_by)
            means = {use: mean(values) for use, values in losses.items()}
            curve.add(CurvePoint(round_number, means, learning_rate, run.seconds(), recall))
            if round_number % 10 == 0:
                note = ", ".join(f"{use.upper()} loss {loss:.3f}" for use, loss in means.items())
                progress("encoder", round_number, recipe.round_count, note)
            run.keep("encoder", round_number, modules, optimiser, schedule, rng, best)
    assert best is not None, "the last round is always scored"
    return best


def _be_loss(texts_BD: Tensor, images_BD: Tensor, round_number: int, recipe: Recipe) -> Tensor:
    if round_number <= recipe.softmax_round_count:
        return in_batch_softmax_loss(texts_BD, images_BD, recipe.softmax_temperature)
    groups_B = torch.arange(len(texts_BD))  # every row is of another family
    return batch_hard_triplet_loss(texts_BD, images_BD, groups_B, recipe.margin)


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
