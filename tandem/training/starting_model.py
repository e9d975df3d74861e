"""What a run begins from: random weights and a vocabulary of its own, or a published encoder."""

from collections.abc import Callable
from dataclasses import replace

from tokenizers import Tokenizer

from tandem.modeling.config import JointConfig
from tandem.modeling.efficientnet import EfficientNetLite0
from tandem.modeling.joint_model import JointModel
from tandem.modeling.pretrained_encoder import PretrainedEncoder
from tandem.modeling.published_checkpoint import PublishedCheckpoint
from tandem.training.recipes import Recipe


def in_its_shape(recipe: Recipe) -> Recipe:
    """Returns the recipe with shape and digest of the published encoder it begins from, if any.

    Raises PublishedCheckpointInvalid where there is none under that name.
    """
    if not recipe.pretrained:
        return recipe
    published = _published(recipe)
    config = published.config
    return replace(
        recipe,
        pretrained_weights_sha256=published.weights_sha256(),
        width=config.width,
        layer_count=config.layer_count,
        head_count=config.head_count,
        vocabulary_size=config.vocabulary_size,
    )


def starting_model(
    recipe: Recipe, learn_vocabulary: Callable[[], Tokenizer]
) -> tuple[JointModel, Tokenizer]:
    """Returns the model as it is before its first step, with its tokenizer.

    `learn_vocabulary` is asked where nothing published brings a tokenizer. Raises
    PublishedCheckpointInvalid, and PackagedWeightsMissing for an image source that needs a package.
    """
    if recipe.pretrained:
        published = _published(recipe)
        tokenizer = published.tokenizer
        model = JointModel(replace(published.config, image_source=recipe.image_source))
        assert isinstance(model.joint_encoder, PretrainedEncoder), "the published shape's"
        published.start(model.joint_encoder)
    else:
        tokenizer = learn_vocabulary()
        model = JointModel(
            JointConfig(
                vocabulary_size=tokenizer.get_vocab_size(),
                width=recipe.width,
                layer_count=recipe.layer_count,
                head_count=recipe.head_count,
                image_source=recipe.image_source,
            )
        )
    if isinstance(model.image_backbone, EfficientNetLite0):
        model.image_backbone.start()
    return model, tokenizer


def _published(recipe: Recipe) -> PublishedCheckpoint:
    published = PublishedCheckpoint.open(recipe.pretrained)
    return published.halved() if recipe.has_half_the_layers else published
