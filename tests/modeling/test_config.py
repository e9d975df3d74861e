"""A model's shape: what fits together is taken, what does not is refused."""

import pytest

from tandem.modeling.config import JointConfig


@pytest.mark.parametrize(("image_size", "count"), [(112, 49), (64, 16), (16, 1)])
def test_an_image_has_a_token_for_each_square_of_16_pixels(image_size: int, count: int) -> None:
    """7 x 7, 4 x 4 and 1 x 1."""
    assert JointConfig(vocabulary_size=10, image_size=image_size).image_token_count == count


def test_a_width_that_heads_cannot_share_is_refused() -> None:
    """100 = 3 heads of 33 and a rest."""
    with pytest.raises(ValueError, match="width 100 does not divide by 3"):
        JointConfig(vocabulary_size=10, width=100, head_count=3)


def test_an_image_that_tokens_cannot_tile_is_refused() -> None:
    """100 = 6 tokens of 16 and a rest."""
    with pytest.raises(ValueError, match="image_size 100 does not divide"):
        JointConfig(vocabulary_size=10, image_size=100)


def test_a_shape_survives_its_dictionary() -> None:
    """What a checkpoint writes is what it reads."""
    config = JointConfig(vocabulary_size=10, width=32, dropout=0.5)

    assert JointConfig(**config.to_dict()) == config
