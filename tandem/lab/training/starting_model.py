"""Builds the model that a run begins from: random, a published encoder, or our checkpoint."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tandem.lab.training.published.learner import published_shape
from tandem.lab.training.recipes.recipe import (
    CooperativeRecipe,
    JointRecipe,
    MatcherRecipe,
    Recipe,
    Rounds,
    Towers,
)
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig
from tandem.modeling.families.vision_folder import PublishedVision
from tandem.modeling.image_sources.efficientnet import EfficientNetLite0
from tandem.modeling.image_sources.vision_tower import VisionTower
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.modeling.towers.text_trunk import TextTrunk
from tandem.modeling.towers.two_towers import TwoTowers

_MATCHER = ("head_dropout", "matcher_width", "matcher_has_towers", "matcher_layer_count")


def in_its_shape(recipe: Recipe, init: Path) -> Recipe:
    """Returns the recipe with the shape and the digest of the weights that it begins from, if any.

    `init` is the checkpoint of a recipe that begins with one. Raises PublishedCheckpointInvalid for
    an unknown published encoder, and ValueError for a folder that is not a checkpoint.
    """
    if recipe.begins_trained:
        files = CheckpointFiles.read(init)
        return replace(
            recipe,
            init_weights_sha256=files.weights_sha256,
            **_shape(files.config),
            image_source=files.config.image_source,
        )
    if isinstance(recipe, MatcherRecipe):
        return _over_towers(recipe, CheckpointFiles.read(init))
    if isinstance(recipe, CooperativeRecipe):
        return published_shape(recipe)
    if recipe.begins_with_backbone:
        files = CheckpointFiles.read(init)
        recipe = replace(
            recipe,
            init_weights_sha256=files.weights_sha256,
            image_source=files.config.image_source,
        )
    if recipe.vision:
        vision = PublishedVision.open(recipe.vision)
        recipe = replace(
            recipe,
            vision_weights_sha256=vision.weights_sha256(),
            image_size=vision.image_size,
        )
    if not recipe.pretrained:
        return recipe
    published = _published(recipe)
    return replace(
        recipe,
        pretrained_weights_sha256=published.weights_sha256(),
        **_shape(published.config),
    )


def as_trained(recipe: JointRecipe, init: Path) -> JointRecipe:
    """Returns the recipe as it continues from a checkpoint, in the uses that this was trained for.

    A checkpoint that is only a BE continues as one, and so does one that is only a CE; separate
    encoders learn in turn, each from its own steps.
    """
    # Both, where the checkpoint does not say: it was made by other means, or combined of two.
    trained = load_checkpoint(init).training.get("recipe", {})
    return replace(
        recipe,
        begins_trained=True,
        be_steps_per_round=recipe.be_steps_per_round if trained.get("be_steps_per_round", 1) else 0,
        ce_steps_per_round=recipe.ce_steps_per_round if trained.get("ce_steps_per_round", 1) else 0,
    )


def starting_model(
    recipe: Recipe, init: Path, learn_vocabulary: Callable[[], Tokenizer]
) -> tuple[JointModel, Tokenizer]:
    """Returns the model before its first step, with its tokenizer.

    `learn_vocabulary` is called for a model that begins with random weights.
    """
    if recipe.begins_trained:
        checkpoint = load_checkpoint(init)
        return checkpoint.model.train(), checkpoint.tokenizer
    if isinstance(recipe, MatcherRecipe):
        checkpoint = load_checkpoint(init)
        return _with_other_matcher(checkpoint.model, recipe), checkpoint.tokenizer
    if recipe.pretrained:
        published = _published(recipe)
        tokenizer, config = published.tokenizer, published.config
    else:
        published, tokenizer = None, learn_vocabulary()
        config = JointConfig(
            vocabulary_size=tokenizer.get_vocab_size(),
            width=recipe.width,
            layer_count=recipe.layer_count,
            head_count=recipe.head_count,
        )
    backbone_of = init if recipe.begins_with_backbone else None
    model = _untrained(_in_recipe(config, recipe), backbone_of, recipe.vision)
    if isinstance(model.joint_encoder, TwoTowers):
        if isinstance(recipe, Rounds):
            model.joint_encoder.start_temperature(recipe.softmax_temperature)
        for late in model.joint_encoder.late_blocks():
            late.start()
    if published:
        encoder = model.joint_encoder
        for each in encoder.text_trunks() if isinstance(encoder, TwoTowers) else [encoder]:
            assert isinstance(each, JointEncoder | TextTrunk), "the published shape's"
            published.start(each)
    return model, tokenizer


def _in_recipe(config: JointConfig, recipe: Recipe) -> JointConfig:
    names = ["image_source", "image_size", "picture_fit", "dropout"]
    if isinstance(recipe, JointRecipe):
        names.append("embedding_pooling")
    if isinstance(recipe, Towers):
        names += ["head_width", *_MATCHER]
    changes: dict[str, Any] = {name: getattr(recipe, name) for name in names}
    if recipe.vision:
        vision = PublishedVision.open(recipe.vision)
        changes |= {
            "vision": vision.vision,
            "vision_token_count": vision.token_count,
            "vision_token_width": vision.token_width,
        }
    if isinstance(recipe, Towers):
        changes |= {"has_two_towers": True, "embedding_width": recipe.embedding_width or None}
    return replace(config, **changes)


def _shape(config: JointConfig) -> dict[str, Any]:
    """Returns the fields of a recipe that weights fix."""
    return {
        name: getattr(config, name)
        for name in ("width", "layer_count", "head_count", "vocabulary_size")
    }


def _over_towers(recipe: MatcherRecipe, files: CheckpointFiles) -> Recipe:
    """Returns the recipe in the shape of the towers; raises ValueError for another model."""
    config = files.config
    if not config.has_two_towers:
        raise ValueError(
            f"recipe {recipe.name} begins with two towers, and the checkpoint given by --init is "
            "another model; give one of photographs or two_towers"
        )
    return replace(
        recipe,
        init_weights_sha256=files.weights_sha256,
        pretrained="",
        **_shape(config),
        image_source=config.image_source,
        image_size=config.image_size,
        picture_fit=config.picture_fit,
        embedding_width=config.embedding_dim,
        head_width=config.head_width,
    )


def _with_other_matcher(trained: JointModel, recipe: MatcherRecipe) -> JointModel:
    """Returns the towers that embed, with the recipe's matcher of random weights."""
    changes = {name: getattr(recipe, name) for name in ("dropout", *_MATCHER)}
    model = JointModel(replace(trained.config, **changes))
    taken, given = trained.joint_encoder, model.joint_encoder
    assert isinstance(taken, TwoTowers), "the recipe's shape is that of two towers"
    assert isinstance(given, TwoTowers), "the recipe's shape is that of two towers"
    model.image_backbone.load_state_dict(trained.image_backbone.state_dict())
    given.text.load_state_dict(taken.text.state_dict())
    given.image.load_state_dict(taken.image.state_dict())
    given.log_scale.data.copy_(taken.log_scale)
    return model


def _untrained(config: JointConfig, init: Path | None, vision: str) -> JointModel:
    """Returns a model of random weights, except for an image backbone that is already trained.

    That is a package's backbone, the network in the folder `vision`, or the one of `init`, which
    then sets the image size.
    """
    if init is None:
        model = JointModel(config)
        if isinstance(model.image_backbone, EfficientNetLite0):
            model.image_backbone.start()
        if isinstance(model.image_backbone, VisionTower):
            PublishedVision.open(vision).start(model.image_backbone)
        return model
    trained = load_checkpoint(init).model
    grid_width = trained.config.token_width if config.image_source == "grid" else None
    model = JointModel(replace(config, image_size=trained.config.image_size, grid_width=grid_width))
    model.image_backbone.load_state_dict(trained.image_backbone.state_dict())
    return model


def _published(recipe: Recipe) -> PublishedCheckpoint:
    published = PublishedCheckpoint.open(recipe.pretrained)
    return published.halved() if recipe.has_half_the_layers else published
