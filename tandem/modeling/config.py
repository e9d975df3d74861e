"""Defines the shape of a model, as config.json of its checkpoint states it."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Final, Literal, Self

from tandem.model_io.pictures.image_rules import BoxNumbers, Fit, ImageRules, RegionRules
from tandem.platform.files.json_object import from_fields

TOKEN_SIZE = 16
"""Side of the square that one image token of a grid or of patches covers, in pixels."""

REGION_WIDTH = 2048 + 6
"""Width of a region's token: the detector's features of a box, and the box."""

Encoder = Literal["pre_norm", "post_norm"]
"""Kinds of layers: our own, or BERT's, which can start from a published checkpoint."""

ImageSource = Literal[
    "grid",
    "patches",
    "efficientnet_lite0",
    "efficientnet_lite0_early",
    "vision_tower",
    "regions",
]
"""Sources of image tokens: our small CNN, raw pixels, networks of others, or a detector.

`efficientnet_lite0_early` ends after 11 of the 16 blocks; the others are part of two towers and
learn with them.
"""

Pooling = Literal["mean", "cls"]
"""What the bi-encoder embeds: the mean of all positions that count, or only the first."""

PictureFit = Literal["letterbox", "squash", "crop"]
"""Ways to make a picture a square (Fit): with margins, distorted, or cut."""

_PATCH_WIDTH = TOKEN_SIZE * TOKEN_SIZE * 3
_EFFICIENTNET_STRIDE, _EFFICIENTNET_WIDTH, _EARLY_WIDTH = 32, 1280, 112


@dataclass(frozen=True, slots=True, kw_only=True)
class JointConfig:
    """Describes a single-stream encoder over text tokens and image tokens."""

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
    """Hidden width of a feed-forward block; None means four times `width`."""
    norm_epsilon: float = 1e-5
    """Epsilon of the encoder's layer norms; BERT's is 1e-12."""
    image_source: ImageSource = "grid"
    grid_width: int | None = None
    """Width of the grid's tokens; None means `width`. Other sources have fixed widths."""
    region_count: int = 50
    """Maximum number of regions per image."""
    embedding_pooling: Pooling = "mean"
    has_two_encoders: bool = False
    """Whether BE and CE are two encoders of this shape (Sep+Coop) instead of one."""
    has_two_towers: bool = False
    """Whether text and picture are embedded apart and a matcher scores pairs (two_towers.py)."""
    embedding_width: int | None = None
    """Of two towers; None means `width`."""
    head_width: int = 384
    """Inner width of the image side of two towers."""
    head_dropout: float = 0.0
    """Dropout there, in training."""
    matcher_width: int = 0
    """Width of the words and image tokens that the matcher of two towers compares; 0 has none."""
    matcher_has_towers: bool = False
    """Whether the matcher has its own text trunk and grid trunk, instead of the embedding's."""
    matcher_layer_count: int = 0
    """How many of the text trunk's last layers such a matcher copies. It then shares the layers
    below and the late blocks with the towers (Joint), and has a grid trunk of its own. 0 shares
    nothing."""
    picture_fit: PictureFit = "letterbox"
    """How a picture becomes a square."""
    vision: Mapping[str, Any] | None = None
    """Of image_source vision_tower: transformers' configuration of the network, and the mean and
    the standard deviation of its pixels."""
    vision_token_count: int = 0
    """Of that network: states of a picture."""
    vision_token_width: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError naming a field that does not fit another."""
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} does not divide by {self.head_count} heads")
        if self.image_size % TOKEN_SIZE:
            raise ValueError(f"image_size {self.image_size} does not divide by {TOKEN_SIZE}")
        if (self.image_source == "vision_tower") != (self.vision is not None):
            raise ValueError("vision: image_source vision_tower needs it, and no other has it")
        if self.has_two_towers and self.head_width % 8:
            raise ValueError(f"head_width {self.head_width} does not divide by 8")
        if self.matcher_has_towers and not self.matcher_width:
            raise ValueError("matcher_has_towers: without a matcher_width there is no matcher")
        if self.matcher_layer_count and not self.matcher_has_towers:
            raise ValueError("matcher_layer_count: only a matcher with towers has layers")
        if self.matcher_layer_count >= self.layer_count:
            raise ValueError(
                f"matcher_layer_count {self.matcher_layer_count}: the text trunk has "
                f"{self.layer_count} layers, of which one at least is shared; 0 shares none"
            )
        if (self.has_two_towers or self.has_two_encoders) and self.image_token_count == 1:
            raise ValueError("two towers or encoders: a picture needs two image tokens at least")

    @property
    def grid_side(self) -> int:
        """Image tokens along one side of the image; 0 without a grid."""
        if self.image_source in ("regions", "vision_tower"):
            return 0
        is_coarse = self.image_source == "efficientnet_lite0"
        # Its convolutions round up.
        return -(-self.image_size // (_EFFICIENTNET_STRIDE if is_coarse else TOKEN_SIZE))

    @property
    def image_token_count(self) -> int:
        """R: tokens per image; a maximum for regions."""
        if self.image_source == "vision_tower":
            return self.vision_token_count
        return self.grid_side**2 if self.grid_side else self.region_count

    @property
    def token_width(self) -> int:
        """Width of image tokens as the image source gives them."""
        widths = {
            "grid": self.grid_width or self.width,
            "patches": _PATCH_WIDTH,
            "efficientnet_lite0": _EFFICIENTNET_WIDTH,
            "efficientnet_lite0_early": _EARLY_WIDTH,
            "vision_tower": self.vision_token_width,
            "regions": REGION_WIDTH,
        }
        return widths[self.image_source]

    @property
    def late_side(self) -> int:
        """Image tokens along one side after the late blocks, where two towers have them, else 0."""
        if not self.has_two_towers or self.image_source != "efficientnet_lite0_early":
            return 0
        return -(-self.image_size // _EFFICIENTNET_STRIDE)

    @property
    def embedding_dim(self) -> int:
        return self.embedding_width or self.width

    @property
    def has_cross_encoder(self) -> bool:
        """Whether pairs are scored by more than the cosine of two towers."""
        return not self.has_two_towers or self.matcher_width > 0

    @property
    def image_rules(self) -> ImageRules:
        return ImageRules(size=self.image_size, fit=Fit(self.picture_fit))

    @property
    def region_rules(self) -> RegionRules | None:
        """How a detector's regions become image tokens; None for a model that reads pixels."""
        if self.image_source != "regions":
            return None
        numbers = BoxNumbers.CORNERS_SIDES
        return RegionRules(
            feature_width=REGION_WIDTH - numbers.width,
            box_numbers=numbers,
            max_regions=self.region_count,
        )

    @classmethod
    def of_fields(cls, values: Mapping[str, object]) -> Self:
        """Returns the shape that config.json describes; raises ValueError as `from_fields` does.

        A missing field is an error unless it is newer than the first checkpoint: another head_count
        is another function of the same weights.
        """
        if lacks := sorted(_FIRST_FIELDS - values.keys()):
            raise ValueError(f"it lacks {', '.join(lacks)}")
        return from_fields(cls, values)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, for a manifest and for the fingerprint.

        Fields that are newer than the first released checkpoint are omitted at their defaults, so
        that its fingerprint stays the same.
        """
        later = {each.name: each.default for each in fields(self) if each.name not in _FIRST_FIELDS}
        return {
            name: value for name, value in asdict(self).items() if value != later.get(name, MISSING)
        }


# Of the first released checkpoint.
_FIRST_FIELDS: Final = {
    *("vocabulary_size", "width", "layer_count", "head_count", "image_size", "max_text_tokens"),
    "dropout",
}
