"""Defines the records that every corpus gives: pictures with captions."""

from dataclasses import dataclass, field
from typing import Protocol

from tandem.contract.filtering.attributes import Attributes


class ImageSource(Protocol):
    """Gives the bytes of a picture: from a file, from an archive, or drawn on demand."""

    def read(self) -> bytes:
        """Returns the picture as an encoded file (JPEG, PNG or WebP), the same on every call."""
        ...


@dataclass(frozen=True, slots=True)
class Caption:
    """Holds one sentence about one picture."""

    caption_id: str
    """Unique among all captions and records of the corpus, even for equal texts, because pictures
    and captions are items of one index."""
    text: str
    language: str
    """ISO 639-1, e.g. "en"."""


@dataclass(frozen=True, slots=True)
class Record:
    """Holds one picture's captions and the source of its bytes, which are read on demand."""

    record_id: str
    """Unique in the corpus."""
    captions: tuple[Caption, ...]
    split: str
    family: str
    """The group of pictures that are hard to distinguish or share captions, such as scenes of the
    same drawings or all drawings of one emoji. A single picture is its own family."""
    image: ImageSource
    attributes: Attributes = field(default_factory=dict)
    """Further facts about the picture, for filters."""
    captions_fault: str | None = None
    """Why the captions cannot be read; then there are none. The reader does not raise it, so that
    the records after this one are still read."""
