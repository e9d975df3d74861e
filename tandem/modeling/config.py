"""The shape of a model, as written beside its checkpoint."""

from dataclasses import asdict, dataclass
from typing import Any

TOKEN_SIZE = 16
"""Pixels on a side of what one image token sees."""


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

    def __post_init__(self) -> None:
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} does not divide by {self.head_count} heads")
        if self.image_size % TOKEN_SIZE:
            raise ValueError(f"image_size {self.image_size} does not divide by {TOKEN_SIZE}")

    @property
    def image_token_count(self) -> int:
        """R: tokens an image has."""
        return (self.image_size // TOKEN_SIZE) ** 2

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, for a manifest."""
        return asdict(self)
