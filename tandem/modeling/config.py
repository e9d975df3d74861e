"""The shape of a model, as written beside its checkpoint."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Final, Literal, Self, get_args

from tandem.model_io.json_object import from_fields, within

TOKEN_SIZE = 16
"""Pixels on a side of what one image token of a grid or of patches sees."""

REGION_WIDTH = 2048 + 6
"""Of a region's token: what a detector says of a box, and where the box is."""

Encoder = Literal["pre_norm", "post_norm"]
"""Our own layers, or BERT's, which can begin from a published checkpoint."""

ImageSource = Literal["grid", "patches", "efficientnet_lite0", "regions"]
"""What image tokens are: our small CNN's, bare pixels, a frozen network's, or a detector's."""

_PATCH_WIDTH = TOKEN_SIZE * TOKEN_SIZE * 3
_EFFICIENTNET_STRIDE, _EFFICIENTNET_WIDTH = 32, 1280


@dataclass(frozen=True, slots=True, kw_only=True)
class JointConfig:
    """A single-stream encoder over text tokens and image tokens."""

    vocabulary_size: int
    width: int = 192
    layer_count: int = 4
    head_count: int = 4
    image_size: int = 112
    """Pixels on a side."""
    max_text_tokens: int = 64
    dropout: float = 0.0
    encoder: Encoder = "pre_norm"
    feed_forward_width: int | None = None
    """Inside a layer; None is four times `width`."""
    norm_epsilon: float = 1e-5
    """Of the encoder's layer norms: BERT's is 1e-12."""
    image_source: ImageSource = "grid"
    grid_width: int | None = None
    """D of the grid's tokens; None is `width`. The other sources have their own."""
    region_count: int = 50
    """Regions an image has at most."""
    has_two_encoders: bool = False
    """BE and CE are two encoders of this shape (Sep+Coop) and not one that is both."""

    def __post_init__(self) -> None:
        """Raises ValueError, naming the field, for what no model can be made of."""
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None:
                within(name, value, low, high)
            if isinstance(value, float) and name not in _FRACTIONS:
                raise ValueError(f"{name} is {value}, not an integer")
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} does not divide by {self.head_count} heads")
        if self.image_size % TOKEN_SIZE:
            raise ValueError(f"image_size {self.image_size} does not divide by {TOKEN_SIZE}")
        if self.encoder not in get_args(Encoder):
            raise ValueError(
                f"no encoder {self.encoder!r}; there are {', '.join(get_args(Encoder))}"
            )
        if self.image_source not in get_args(ImageSource):
            known = ", ".join(get_args(ImageSource))
            raise ValueError(f"no image_source {self.image_source!r}; there are {known}")
        if self.has_two_encoders and self.image_token_count == 1:
            raise ValueError("has_two_encoders: a pair is told by two image tokens at least")

    @property
    def grid_side(self) -> int:
        """Image tokens on a side of the image; 0 where they lie in no grid."""
        if self.image_source == "regions":
            return 0
        is_coarse = self.image_source == "efficientnet_lite0"
        # Rounded up, as its convolutions do.
        return -(-self.image_size // (_EFFICIENTNET_STRIDE if is_coarse else TOKEN_SIZE))

    @property
    def image_token_count(self) -> int:
        """R: tokens an image has, of regions at most."""
        return self.grid_side**2 if self.grid_side else self.region_count

    @property
    def token_width(self) -> int:
        """D of image tokens, as the image source gives them."""
        widths = {
            "grid": self.grid_width or self.width,
            "patches": _PATCH_WIDTH,
            "efficientnet_lite0": _EFFICIENTNET_WIDTH,
            "regions": REGION_WIDTH,
        }
        return widths[self.image_source]

    @property
    def least_weight_count(self) -> int:
        """Numbers that such a model has at least: its words, its places, its layers' matrices."""
        inner_width = self.feed_forward_width or 4 * self.width
        a_layer = 4 * self.width**2 + 2 * self.width * inner_width
        words_and_places = (self.vocabulary_size + self.max_text_tokens) * self.width
        return words_and_places + self.layer_count * a_layer

    @classmethod
    def of_fields(cls, values: Mapping[str, object]) -> Self:
        """Returns the shape that config.json describes; raises ValueError as `from_fields` does.

        A missing field is an error unless it is newer than the first checkpoint: another head_count
        is another function of the same weights.
        """
        names = {each.name for each in fields(cls)} - _LATER_FIELDS
        if lacks := sorted(names - values.keys()):
            raise ValueError(f"it lacks {', '.join(lacks)}")
        return from_fields(cls, values)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, for a manifest and for the fingerprint.

        Fields that came after the first shipped checkpoint are left out at their defaults, so that
        a fingerprint made before them is made again.
        """
        later = {each.name: each.default for each in fields(self) if each.name in _LATER_FIELDS}
        return {
            name: value for name, value in asdict(self).items() if value != later.get(name, MISSING)
        }


# What no real model comes near, and what a damaged file should not make room for.
_RANGES: Final = {
    "vocabulary_size": (1, 10_000_000),
    "width": (1, 65_536),
    "layer_count": (1, 1_000),
    "head_count": (1, 65_536),
    "image_size": (TOKEN_SIZE, 8_192),
    "max_text_tokens": (3, 65_536),
    "dropout": (0.0, 0.99),
    "feed_forward_width": (1, 1_000_000),
    "norm_epsilon": (0.0, 1.0),
    "grid_width": (1, 65_536),
    "region_count": (1, 65_536),
}
_FRACTIONS: Final = {"dropout", "norm_epsilon"}

_LATER_FIELDS = {
    "encoder",
    "feed_forward_width",
    "norm_epsilon",
    "image_source",
    "grid_width",
    "region_count",
    "has_two_encoders",
}
