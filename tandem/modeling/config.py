"""The shape of a model, as written beside its checkpoint."""

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, get_args

TOKEN_SIZE = 16
"""Pixels on a side of what one image token sees."""

Encoder = Literal["pre_norm", "post_norm"]
"""Our own layers, or BERT's, which can begin from a published checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointConfig:
    """A single-stream encoder over text tokens and a grid of image tokens."""

    vocabulary_size: int
    width: int = 192
    layer_count: int = 4
    head_count: int = 4
    image_size: int = 112
    """Pixels on a side; the grid has a token for each TOKEN_SIZE x TOKEN_SIZE of them."""
    max_text_tokens: int = 64
    dropout: float = 0.0
    encoder: Encoder = "pre_norm"
    feed_forward_width: int | None = None
    """Inside a layer; None is four times `width`."""
    norm_epsilon: float = 1e-5
    """Of the encoder's layer norms: BERT's is 1e-12."""

    def __post_init__(self) -> None:
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} does not divide by {self.head_count} heads")
        if self.image_size % TOKEN_SIZE:
            raise ValueError(f"image_size {self.image_size} does not divide by {TOKEN_SIZE}")
        if self.encoder not in get_args(Encoder):
            raise ValueError(
                f"no encoder {self.encoder!r}; there are {', '.join(get_args(Encoder))}"
            )

    @property
    def image_token_count(self) -> int:
        """R: tokens an image has."""
        return (self.image_size // TOKEN_SIZE) ** 2

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, for a manifest and for the fingerprint.

        Fields that came after the first shipped checkpoint are left out at their defaults, so that
        a fingerprint made before them is made again.
        """
        later = {each.name: each.default for each in fields(self) if each.name in _LATER_FIELDS}
        return {
            name: value for name, value in asdict(self).items() if value != later.get(name, MISSING)
        }


_LATER_FIELDS = {"encoder", "feed_forward_width", "norm_epsilon"}
