"""Trains a joint model on scenes, from a recipe to a checkpoint folder.

Read it top to bottom: learn the captions' vocabulary, learn what the drawings are
(image_backbone_stage.py), compute every training scene's image tokens once, then let BE and CE
take turns on one set of weights (rounds.py).

Shapes: N scenes, R image tokens, D width.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn

from tandem.corpus.nouns import LANGUAGES
from tandem.corpus.scene import Scene
from tandem.corpus.scene_captions import captions_of
from tandem.corpus.scenes import Split, scene_families
from tandem.modeling.image_backbone import ImageBackbone
from tandem.training.caption_tokenizer import train_tokenizer
from tandem.training.dev_recall import DevRecall, DevSet
from tandem.training.image_backbone_stage import image_tokens, train_image_backbone
from tandem.training.pair_pool import PairPool, tokenize
from tandem.training.recipes import Recipe
from tandem.training.rounds import train_rounds
from tandem.training.run import Progress, Run
from tandem.training.scene_pairs import ScenePairs
from tandem.training.starting_model import in_its_shape, starting_model

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

    `folder` gets the checkpoint, the loss curve (loss_curve.py) and, until the run is over, its
    state every `state_every_step_count` steps of a stage. With `resume` a run goes on from there,
    to the same weights as if it had never stopped. The same recipe on the same machine gives the
    same weights. Raises ValueError for a recipe that trains nothing or reads regions, which scenes
    have none of, RunStateInvalid for another recipe's state, LossCurveIncomplete where the curve
    does not reach the state, and what `starting_model` raises.
    """
    recipe = in_its_shape(recipe)
    run = Run(recipe, folder, progress, state_every_step_count, resume=resume)
    torch.manual_seed(recipe.seed)
    train_families = list(islice(scene_families("train", recipe.seed), recipe.pool_family_count))
    model, tokenizer = starting_model(recipe, lambda: _learn_vocabulary(train_families, recipe))
    if isinstance(model.image_backbone, ImageBackbone):
        train_image_backbone(model.image_backbone, model.config.image_size, run)
    tokens_NRD = image_tokens(model.image_backbone, train_families, progress, "image tokens")
    pool = PairPool(ScenePairs(train_families), tokens_NRD, tokenizer)
    dev = _dev_set(model.image_backbone, tokenizer, run)
    best = train_rounds(model, pool, dev, tokenizer, run)
    run.state_file.delete()
    progress("done", 1, 1, f"{best} in {run.seconds():,.0f} s")
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


def _dev_set(backbone: nn.Module, tokenizer: Tokenizer, run: Run) -> DevSet:
    split: Split = "val"
    recipe = run.recipe
    families = list(
        islice(scene_families(split, recipe.seed, _DEV_FAMILY_START), recipe.dev_family_count)
    )
    scenes = [scene for family in families for scene in family]
    texts = [
        captions_of(scene, LANGUAGES[number % len(LANGUAGES)])[0]
        for number, scene in enumerate(scenes)
    ]
    tokens_NRD = image_tokens(backbone, families, run.progress, "dev tokens")
    return DevSet(tokenize(tokenizer, texts), tokens_NRD)
