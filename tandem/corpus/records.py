"""What every corpus gives: pictures with captions, one record a picture."""

from dataclasses import dataclass, field
from typing import Protocol

from tandem.contract.attributes import Attributes


class ImageSource(Protocol):
    """Where the bytes of a picture come from: a file, an archive, or a drawing made when asked."""

    def read(self) -> bytes:
        """Returns the picture as an encoded file (JPEG, PNG or WebP), the same at every call."""
        ...


@dataclass(frozen=True, slots=True)
class Caption:
    """One sentence about one picture."""

    caption_id: str
    """Unlike every other caption's in the corpus, even where two captions say the same, and unlike
    every record's: pictures and captions are items of one index."""
    text: str
    language: str
    """ISO 639-1, e.g. "en"."""


@dataclass(frozen=True, slots=True)
class Record:
    """One picture and what is said of it. It holds no pixels: they are read when asked for."""

    record_id: str
    """Unlike every other record's in the corpus."""
    captions: tuple[Caption, ...]
    split: str
    family: str
    """The group whose members are hard for one another or share captions, such as the scenes of
    the same drawings, or all drawings of one emoji. A picture on its own is its own family."""
    image: ImageSource
    attributes: Attributes = field(default_factory=dict)
    """What the corpus knows of the picture beside, for filters."""
    captions_fault: str | None = None
    """Why its captions cannot be read, where they cannot; then it has none. It is told here and not
    raised by the corpus's reader, so that the records behind it still come."""
