"""A model's shape: what fits together is taken, what does not is refused."""

import json

import pytest

from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import ImageSource, JointConfig
from tandem.modeling.default_checkpoint import default_checkpoint


def test_what_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="width 100 does not divide by 3"):
        JointConfig(vocabulary_size=10, width=100, head_count=3)
    with pytest.raises(ValueError, match="image_size 100 does not divide"):
        JointConfig(vocabulary_size=10, image_size=100)


@pytest.mark.parametrize(
    ("source", "count", "width"),
    [
        ("grid", 49, 24),
        ("patches", 49, 768),
        ("efficientnet_lite0", 16, 1280),
        ("regions", 36, 2054),
    ],
)
def test_a_source_gives_the_number_and_width_of_tokens(
    source: ImageSource, count: int, width: int
) -> None:
    config = JointConfig(vocabulary_size=10, image_source=source, grid_width=24, region_count=36)

    assert (config.image_token_count, config.token_width) == (count, width)


def test_a_shape_survives_its_dictionary() -> None:
    config = JointConfig(
        vocabulary_size=10, encoder="post_norm", feed_forward_width=64, norm_epsilon=1e-12
    )
    assert JointConfig(**config.to_dict()) == config


def test_the_shipped_models_fingerprint_stays() -> None:
    """Fields that it was made without are not in it: indexes of its embeddings stay searchable."""
    files = CheckpointFiles.read(default_checkpoint())

    assert files.config.encoder == "pre_norm"
    assert files.config.to_dict() == json.loads((default_checkpoint() / "config.json").read_text())
