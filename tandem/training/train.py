"""Trains a joint model on scenes, from a recipe to a checkpoint folder.

Read it top to bottom: learn what the drawings are, compute every training scene's image tokens
once, then take turns: a batch-hard triplet step for the bi-encoder, a pair classification step for
the cross-encoder, on one set of weights with one optimiser (Geigle et al. 2022, 3.3).

Shapes: B rows, R image tokens, D width, C classes.
"""

import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
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
from tandem.model_io.special_tokens import special_tokens
from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.image_backbone import ImageBackbone
from tandem.modeling.joint_model import JointModel
from tandem.training.caption_tokenizer import train_tokenizer
from tandem.training.dev_recall import DevRecall, dev_recall
from tandem.training.losses import (
    batch_hard_triplet_loss,
    in_batch_softmax_loss,
    labelling_loss,
    pair_classification_loss,
)
from tandem.training.recipes import Recipe
from tandem.training.run_state import (
    RunState,
    RunStateFile,
    batch_rng_state,
    restore_batch_rng,
)
from tandem.training.scene_batches import ScenePool, TextBatch, labelled_pixels, tokenize
from tandem.training.scene_labels import class_count
from tandem.training.starting_model import in_its_shape, starting_model

# Called with the stage, the step reached, the steps there are, and what to show of it.
Progress = Callable[[str, int, int, str], None]

_WARM_UP_STEP_COUNT = 100
_TOKENIZER_FAMILY_COUNT = 2_000
# Far from any that pools and demos count up from, so that the dev scenes are nobody else's.
_DEV_FAMILY_START = 1_000_000


def train(
    recipe: Recipe,
    folder: Path,
    progress: Progress,
    *,
    resume: bool = False,
    state_every_step_count: int = 50,
) -> DevRecall:
    """Trains by the recipe, keeps the best checkpoint by dev score, returns its recalls.

    `folder` gets the checkpoint and, until the run is over, its state every
    `state_every_step_count` steps of a stage. With `resume` a run goes on from there, to the same
    weights as if it had never stopped. The same recipe on the same machine gives the same weights.
    Raises ValueError for a recipe that trains nothing or reads regions, which scenes have none of,
    RunStateInvalid for another recipe's state, and what `starting_model` raises.
    """
    if not (recipe.trains_be or recipe.trains_ce):
        raise ValueError(f"recipe {recipe.name} has steps for neither BE nor CE")
    if recipe.round_count < 1:
        raise ValueError(f"recipe {recipe.name} has no rounds, so there would be no checkpoint")
    recipe = in_its_shape(recipe)
    run = _Run(recipe, folder, progress, state_every_step_count, resume=resume)
    torch.manual_seed(recipe.seed)
    train_families = list(islice(scene_families("train", recipe.seed), recipe.pool_family_count))
    model, tokenizer = starting_model(recipe, lambda: _learn_vocabulary(train_families, recipe))
    if isinstance(model.image_backbone, ImageBackbone):
        _train_backbone(model.image_backbone, model.config.image_size, run)
    pool = ScenePool(
        train_families,
        _image_tokens(model.image_backbone, train_families, progress, "image tokens"),
        tokenizer,
    )
    best = _train_encoder(model, pool, tokenizer, run)
    run.state_file.delete()
    progress("done", 1, 1, f"{best} in {run.seconds():,.0f} s")
    return best


class _Run:
    """What the stages share: the recipe, where things go, and the state that was found."""

    def __init__(
        self, recipe: Recipe, folder: Path, progress: Progress, state_every: int, *, resume: bool
    ) -> None:
        self.recipe, self.folder, self.progress = recipe, folder, progress
        self.state_file = RunStateFile(folder, recipe)
        self._found = self.state_file.load() if resume else None
        self._state_every = state_every
        self._start_time = time.monotonic() - (self._found.seconds if self._found else 0.0)

    def seconds(self) -> float:
        """Returns how long the run has taken, without the time between a stop and going on."""
        return time.monotonic() - self._start_time

    def found(self, stage: str) -> RunState | None:
        """Returns the state to go on from, if it is of this stage."""
        return self._found if self._found and self._found.stage == stage else None

    def keep(
        self,
        stage: str,
        step: int,
        modules: Mapping[str, nn.Module],
        optimiser: AdamW,
        schedule: LambdaLR,
        rng: random.Random | None = None,
        best: DevRecall | None = None,
    ) -> None:
        """Writes the state, unless it was written not long ago."""
        if step % self._state_every:
            return
        self.state_file.save(
            RunState(
                stage=stage,
                step=step,
                modules={name: module.state_dict() for name, module in modules.items()},
                optimiser=optimiser.state_dict(),
                schedule=schedule.state_dict(),
                torch_rng=torch.get_rng_state(),
                batch_rng=batch_rng_state(rng) if rng else torch.empty(0, dtype=torch.int64),
                best=asdict(best) if best else None,
                seconds=self.seconds(),
            )
        )


def _restore(
    state: RunState,
    modules: Mapping[str, nn.Module],
    optimiser: AdamW,
    schedule: LambdaLR,
    rng: random.Random | None = None,
) -> None:
    for name, module in modules.items():
        module.load_state_dict(state.modules[name])
    optimiser.load_state_dict(state.optimiser)
    schedule.load_state_dict(state.schedule)
    torch.set_rng_state(state.torch_rng)
    if rng:
        restore_batch_rng(rng, state.batch_rng)


def _learn_vocabulary(families: Sequence[tuple[Scene, ...]], recipe: Recipe) -> Tokenizer:
    texts = (
        text
        for family in families[:_TOKENIZER_FAMILY_COUNT]
        for scene in family
        for language in LANGUAGES
        for text in captions_of(scene, language)
    )
    return train_tokenizer(texts, recipe.vocabulary_size)


def _train_backbone(backbone: ImageBackbone, image_size: int, run: _Run) -> None:
    """Labelling drawings, then frozen: what follows never pays for a convolution again."""
    recipe, step_count = run.recipe, run.recipe.backbone_step_count
    head = nn.Linear(backbone.project.out_features, class_count())
    backbone.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimiser = AdamW(
        [*backbone.parameters(), *head.parameters()], lr=recipe.backbone_learning_rate
    )
    schedule = _warm_up_then_linear(optimiser, step_count)
    modules = {"backbone": backbone, "head": head}
    done = 0
    if later := run.found("encoder"):
        backbone.load_state_dict(later.modules["backbone"])
        done = step_count
    elif state := run.found("backbone"):
        _restore(state, modules, optimiser, schedule)
        done = state.step
    batches = labelled_pixels(
        recipe.seed, recipe.backbone_batch_size, step_count, image_size, start=done
    )
    for step, (pixels_BHWC, classes_BR) in enumerate(batches, start=done + 1):
        with torch.autocast("cpu", torch.bfloat16):
            logits_BRC = head(backbone.tokens(pixels_BHWC))
        loss = labelling_loss(logits_BRC, classes_BR)
        _step(loss, optimiser, schedule, recipe.gradient_clip_norm)
        if step % 10 == 0 or step == step_count:
            drawn = classes_BR > 0
            right = (logits_BRC.argmax(-1) == classes_BR)[drawn].float().mean().item()
            note = f"loss {loss.item():.3f}, drawings named right {right:.1%}"
            run.progress("backbone", step, step_count, note)
        run.keep("backbone", step, modules, optimiser, schedule)
    backbone.eval().requires_grad_(False)


@torch.inference_mode()
def _image_tokens(
    backbone: nn.Module, families: Sequence[tuple[Scene, ...]], progress: Progress, stage: str
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
    run: _Run,
) -> DevRecall:
    recipe, progress = run.recipe, run.progress
    optimiser = AdamW(
        _decayed_groups(model.joint_encoder, recipe.weight_decay),
        recipe.learning_rate,
    )
    schedule = _warm_up_then_linear(optimiser, recipe.round_count)
    rng = random.Random(f"rounds/{recipe.seed}")
    cls_id = special_tokens(tokenizer).cls_id
    dev_texts, dev_tokens_NRD = _dev_set(model.image_backbone, tokenizer, recipe, progress)
    best: DevRecall | None = None
    modules = {"backbone": model.image_backbone, "encoder": model.joint_encoder}
    done = 0
    if state := run.found("encoder"):
        _restore(state, modules, optimiser, schedule, rng)
        done = state.step
        best = DevRecall(**state.best) if state.best else None
    be_loss, ce_loss = torch.zeros(()), torch.zeros(())
    for round_number in range(done + 1, recipe.round_count + 1):
        model.train()
        model.image_backbone.eval()

        for _ in range(recipe.be_steps_per_round):
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
                recall = dev_recall(model, dev_texts, dev_tokens_NRD, cls_id, recipe)
            progress("encoder", round_number, recipe.round_count, f"dev {recall}")
            if best is None or recall.score > best.score:
                best = recall
                made_by = _made_by(recipe, round_number, recall, run.seconds())
                save_checkpoint(run.folder, model, tokenizer, made_by)
        run.keep("encoder", round_number, modules, optimiser, schedule, rng, best)
    assert best is not None, "the last round is always scored"
    return best


def _be_loss(texts_BD: Tensor, images_BD: Tensor, round_number: int, recipe: Recipe) -> Tensor:
    if round_number <= recipe.softmax_round_count:
        return in_batch_softmax_loss(texts_BD, images_BD, recipe.softmax_temperature)
    groups_B = torch.arange(len(texts_BD))  # every row is of another family
    return batch_hard_triplet_loss(texts_BD, images_BD, groups_B, recipe.margin)


def _dev_set(
    backbone: nn.Module, tokenizer: Tokenizer, recipe: Recipe, progress: Progress
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
