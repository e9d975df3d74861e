"""Trains a joint model on scenes, from a recipe to a checkpoint folder.

Read it top to bottom: learn the captions' vocabulary, learn what the drawings are
(image_backbone_stage.py), compute every training scene's image tokens once, then let BE and CE
take turns on one set of weights (rounds.py).
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer

from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.drawing import scene_pixels
from tandem.corpus.scenes.nouns import LANGUAGES
from tandem.corpus.scenes.records import Split, scene_families
from tandem.corpus.scenes.scene import Scene
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.image_backbone import ImageBackbone
from tandem.modeling.joint_model import JointModel
from tandem.training.data.batches import tokenize
from tandem.training.data.caption_tokenizer import train_tokenizer
from tandem.training.data.image_tokens import image_tokens
from tandem.training.data.pair_pool import PairPool
from tandem.training.data.pooled_images import HeldImages
from tandem.training.data.scene_pairs import ScenePairs
from tandem.training.dev_recall import DevRecall, DevSet
from tandem.training.image_backbone_stage import train_image_backbone
from tandem.training.processes import ALONE, Processes
from tandem.training.recipes import Recipe
from tandem.training.rounds import train_rounds
from tandem.training.run import Progress, Run, check_init_stays
from tandem.training.starting_model import in_its_shape, starting_model

_CPU = torch.device("cpu")
_TOKENIZER_FAMILY_COUNT = 2_000
# Far from any that pools and demos count up from, so that the dev scenes are nobody else's.
_DEV_FAMILY_START = 1_000_000


def train(
    recipe: Recipe,
    folder: Path,
    progress: Progress,
    *,
    init: Path | None = None,
    resume: bool = False,
    state_every_step_count: int = 50,
    device: torch.device = _CPU,
    processes: Processes = ALONE,
) -> DevRecall:
    """Trains by the recipe, keeps the best checkpoint by dev score, returns its recalls.

    A recipe that begins trained, or with a trained image backbone, does with `init`, the shipped
    checkpoint unless given. `folder` gets the checkpoint, the loss curve (loss_curve.py) and, until
    the run is over, its state every `state_every_step_count` steps of a stage. With `resume` a run
    goes on from there, to the same weights as if it had never stopped; where there is no state, it
    begins anew, also in the place of a run that is over (check_unfinished). The same recipe on the
    same machine's CPU gives the same weights. Of several processes only the first writes and tells.
    Raises ValueError for a recipe that trains nothing or reads regions, which scenes have none of,
    and where `folder` holds the checkpoint that it begins with, RunStateInvalid for another
    recipe's state, LossCurveIncomplete where the curve does not reach the state, CaptionTooLong
    where the tokenizer splits a caption too finely, and what `starting_model` raises.
    """
    if recipe.image_source == "regions":
        raise ValueError(
            "image_source is regions, a detector's, and scenes have none; train on --corpus with "
            "--regions, or take another image source"
        )
    init = init or default_checkpoint()
    if recipe.begins_trained or recipe.begins_with_backbone:
        check_init_stays(init, folder)
    recipe = in_its_shape(recipe, init)
    run = Run(
        recipe,
        folder,
        progress,
        state_every=state_every_step_count,
        resume=resume,
        device=device,
        processes=processes,
    )
    torch.manual_seed(recipe.seed)
    train_families = list(islice(scene_families("train", recipe.seed), recipe.pool_family_count))
    model, tokenizer = starting_model(
        recipe, init, lambda: _learn_vocabulary(train_families, recipe)
    )
    model.to(device)
    if recipe.begins_trained or recipe.begins_with_backbone:
        model.image_backbone.eval().requires_grad_(False)
    elif isinstance(model.image_backbone, ImageBackbone):
        train_image_backbone(model.image_backbone, model.config.image_size, run)
    scenes = [scene for family in train_families for scene in family]
    images = HeldImages(
        image_tokens(model.image_backbone, scenes, scene_pixels, run, "image tokens")
    )
    pool = PairPool(ScenePairs(train_families), images, tokenizer, model.config.max_text_tokens)
    dev = _dev_set(model, tokenizer, run)
    best = train_rounds(model, pool, dev, tokenizer, run)
    run.end(f"{run.seconds():,.0f} s")
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


def _dev_set(model: JointModel, tokenizer: Tokenizer, run: Run) -> DevSet:
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
    images = HeldImages(image_tokens(model.image_backbone, scenes, scene_pixels, run, "dev tokens"))
    return DevSet(
        tokenize(tokenizer, texts, model.config.max_text_tokens), *images.of(range(len(scenes)))
    )
