"""Composes the scenes that a run trains on; they depend only on the seed."""

from collections.abc import Iterable
from itertools import islice

from tokenizers import Tokenizer

from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.drawing import scene_pixels
from tandem.corpus.scenes.nouns import LANGUAGES
from tandem.corpus.scenes.records import scene_families
from tandem.corpus.scenes.scene import Scene
from tandem.lab.training.data.batches import Splitter
from tandem.lab.training.recipes.recipe import CooperativeRecipe, Recipe, Towers
from tandem.lab.training.runs.run import Progress, Run
from tandem.lab.training.sources.scene_pairs import ScenePairs
from tandem.lab.training.sources.source import PixelPictures, TrainingData
from tandem.lab.training.stages.backbone_lessons import BackboneLesson, LabelLesson
from tandem.model_io.pictures.image_rules import PictureRules
from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.image_backbone import ImageBackbone
from tandem.modeling.joint_model import JointModel

_TOKENIZER_FAMILY_COUNT = 2_000
# Pools and demos count up from 0, so this keeps the dev scenes to themselves.
_DEV_FAMILY_START = 1_000_000


class SceneSource:
    """Gives families of scenes, whose drawings have labels and whose siblings mismatch."""

    def shaped(self, recipe: Recipe) -> Recipe:
        if recipe.image_source == "regions":
            raise ValueError(
                "image_source is regions, a detector's, and scenes have none; train on --corpus "
                "with --regions, or take another image source"
            )
        if isinstance(recipe, Towers | CooperativeRecipe) or recipe.holds_out:
            raise ValueError(f"recipe {recipe.name} is for your own pictures; train on --corpus")
        return recipe

    def texts(self, recipe: Recipe) -> Iterable[str]:
        """Yields the captions of the first families, in every language."""
        return (
            text
            for family in _train_families(recipe)[:_TOKENIZER_FAMILY_COUNT]
            for scene in family
            for language in LANGUAGES
            for text in captions_of(scene, language)
        )

    def read(
        self,
        recipe: Recipe,
        config: JointConfig | PictureRules,
        tokenizer: Splitter,
        progress: Progress,
    ) -> TrainingData:
        """Returns the recipe's families, and dev scenes captioned in alternating languages."""
        families = _train_families(recipe)
        dev_families = islice(
            scene_families("val", recipe.seed, _DEV_FAMILY_START), recipe.dev_family_count
        )
        dev_scenes = [scene for family in dev_families for scene in family]
        return TrainingData(
            recipe=recipe,
            pairs=ScenePairs(families),
            train=_pictures(scene for family in families for scene in family),
            dev=_pictures(dev_scenes),
            dev_captions=[
                captions_of(scene, LANGUAGES[number % len(LANGUAGES)])[0]
                for number, scene in enumerate(dev_scenes)
            ],
            lesson=_lesson,
            skipped_counts={},
        )


def _pictures(scenes: Iterable[Scene]) -> PixelPictures:
    every = list(scenes)
    return PixelPictures(len(every), lambda number: scene_pixels(every[number]))


def _lesson(model: JointModel, _: Tokenizer, run: Run) -> BackboneLesson | None:
    if not isinstance(model.image_backbone, ImageBackbone):
        return None
    return LabelLesson(model.image_backbone, model.config.image_size, run)


def _train_families(recipe: Recipe) -> list[tuple[Scene, ...]]:
    return list(islice(scene_families("train", recipe.seed), recipe.pool_family_count))
