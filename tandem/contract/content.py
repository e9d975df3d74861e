"""Content as the rooms pass it around: text or image, and what the models see of it.

Arrays' shapes: T token ids of a text, R rows of an image, D values in a row, d dimensions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # For types alone: the SDK shares this module and does without numpy.
    import numpy as np
    from numpy.typing import NDArray


MAX_IMAGE_BYTES = 8 * 2**20
"""Of an image's file."""
MAX_LONG_TEXT_BYTES = 131_072
"""Of a text that need not be read whole: its tokens are counted all the same, and that takes time.
"""


class Modality(enum.Enum):
    """The kind of thing a content is."""

    TEXT = "text"
    IMAGE = "image"

    @property
    def other(self) -> Modality:
        """What a query in this modality finds unless it says otherwise."""
        return Modality.IMAGE if self is Modality.TEXT else Modality.TEXT


@dataclass(frozen=True, slots=True)
class TextContent:
    """Words."""

    text: str

    @property
    def modality(self) -> Modality:
        """Always `Modality.TEXT`."""
        return Modality.TEXT


@dataclass(frozen=True, slots=True)
class ImageContent:
    """A picture, as the bytes of a JPEG, PNG or WebP file."""

    image_bytes: bytes

    @property
    def modality(self) -> Modality:
        """Always `Modality.IMAGE`."""
        return Modality.IMAGE


Content = TextContent | ImageContent


class TruncationPolicy(enum.Enum):
    """What becomes of a text that has more tokens than the model reads."""

    ERROR = "error"
    TRUNCATE = "truncate"
    BEST_WINDOW = "best_window"


@dataclass(frozen=True, slots=True)
class TextUse:
    """How many tokens a text has, special ones included, and how many of them were read."""

    token_count: int
    used_token_count: int

    @property
    def is_truncated(self) -> bool:
        """Whether some were not read."""
        return self.used_token_count < self.token_count


# eq=False below: arrays compare element by element, so `==` on the whole would raise.
@dataclass(frozen=True, slots=True, eq=False)
class TextTokens:
    """A text as the tokenizer splits it: int32 `ids` [T], special tokens included."""

    ids: NDArray[np.int32]

    @property
    def modality(self) -> Modality:
        """Always `Modality.TEXT`."""
        return Modality.TEXT


@dataclass(frozen=True, slots=True, eq=False)
class ImageTokens:
    """An image as the image backbone sees it: float16 `values` [R, D]."""

    values: NDArray[np.float16]

    @property
    def modality(self) -> Modality:
        """Always `Modality.IMAGE`."""
        return Modality.IMAGE


Tokens = TextTokens | ImageTokens


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """One content as the models see it: a unit-length float32 `embedding` [d], and `tokens`."""

    embedding: NDArray[np.float32]
    tokens: Tokens
    text_use: TextUse | None = None
    """None of an image, and where it was not said."""
    further_windows: tuple[Encoding, ...] = ()
    """Of a text read by TruncationPolicy.BEST_WINDOW: its windows after this one."""
