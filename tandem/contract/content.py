"""Defines contents, texts or images or their regions, and the models' representations of them.

Arrays' shapes: T token ids of a text, R rows of an image, D values in a row, d dimensions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tandem.contract.modality import Modality as Modality
from tandem.contract.regions import RegionContent

if TYPE_CHECKING:
    # For types only: the SDK uses this module without numpy.
    import numpy as np
    from numpy.typing import NDArray


MAX_IMAGE_BYTES = 32 * 2**20
"""The limit for an image file: half a message, so that the largest is sent alone."""
MAX_LONG_TEXT_BYTES = 131_072
"""The limit for a text that may be truncated; counting its tokens takes time."""
LONG_TEXT_CHARACTERS = MAX_LONG_TEXT_BYTES // 4
"""As many characters always fit that limit, and no model reads more."""


@dataclass(frozen=True, slots=True)
class TextContent:
    """A text."""

    modality: ClassVar = Modality.TEXT

    text: str


@dataclass(frozen=True, slots=True)
class ImageContent:
    """An image, as the bytes of a JPEG, PNG or WebP file."""

    modality: ClassVar = Modality.IMAGE

    image_bytes: bytes


Content = TextContent | ImageContent | RegionContent


def content_bytes(content: Content) -> bytes:
    """Returns what stores keep and digests read of a content, in one piece."""
    match content:
        case TextContent(text):
            return text.encode()
        case ImageContent(image_bytes):
            return image_bytes
        case RegionContent():
            return content.packed()


class TruncationPolicy(enum.Enum):
    """What to do with a text that has more tokens than the model reads."""

    ERROR = "error"
    TRUNCATE = "truncate"
    BEST_WINDOW = "best_window"


@dataclass(frozen=True, slots=True)
class TextUse:
    """How many tokens a text has, with special tokens, and how many the model read."""

    token_count: int
    used_token_count: int

    @property
    def is_truncated(self) -> bool:
        return self.used_token_count < self.token_count


# eq=False below: arrays compare element by element, so `==` on the whole would raise.
@dataclass(frozen=True, slots=True, eq=False)
class TextTokens:
    """The cross-encoder's input of a text: int32 `ids` [T], with special tokens.

    Empty if the model has no cross-encoder.
    """

    modality: ClassVar = Modality.TEXT

    ids: NDArray[np.int32]

    @property
    def is_empty(self) -> bool:
        return not self.ids.size


@dataclass(frozen=True, slots=True, eq=False)
class ImageTokens:
    """The cross-encoder's input of a picture: float16 `values` [R, D].

    Empty if the model has no cross-encoder, or computes them from the picture when it scores.
    """

    modality: ClassVar = Modality.IMAGE

    values: NDArray[np.float16]

    @property
    def is_empty(self) -> bool:
        return not self.values.size


Tokens = TextTokens | ImageTokens


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """The model's output for one content: a unit-length float32 `embedding` [d], and `tokens`."""

    embedding: NDArray[np.float32]
    tokens: Tokens
    text_use: TextUse | None = None
    """None for an image, or if unknown."""
    further_windows: tuple[Encoding, ...] = ()
    """With TruncationPolicy.BEST_WINDOW: the windows after the first."""
