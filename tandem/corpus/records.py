"""Defines the records that every corpus gives: pictures with captions."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, runtime_checkable

from tandem.contract.filtering.attributes import Attributes
from tandem.contract.identifiers import MAX_ITEM_ID_BYTES

# The ids of captions are their record's with an end like "#zh-Hant-12".
_MAX_RECORD_ID_BYTES: Final = MAX_ITEM_ID_BYTES - 16
_DIGEST_LENGTH: Final = 16


class FileState(NamedTuple):
    """What a file system says of a file without reading it."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    """Also of a change of name, as in a swap, and of a time that was set by hand."""


@runtime_checkable
class ImageSource(Protocol):
    """Gives the bytes of a picture: from a file, from an archive, or drawn on demand."""

    def read(self) -> bytes:
        """Returns the picture as an encoded file (JPEG, PNG or WebP), the same on every call."""

    def stat(self) -> FileState | None:
        """Returns the state of what has the bytes: the same as long as they are, reads none.

        None if there is no such file, so that only `read` says what the picture is.
        """
        return None


def record_id_of(name: str) -> str:
    """Returns the id of a record of this name: itself, or a head and a digest of one too long."""
    name_bytes = name.encode(errors="surrogatepass")
    if len(name_bytes) <= _MAX_RECORD_ID_BYTES:
        return name
    head = name_bytes[: _MAX_RECORD_ID_BYTES - _DIGEST_LENGTH - 1].decode(errors="ignore")
    return f"{head}~{sha256(name_bytes).hexdigest()[:_DIGEST_LENGTH]}"


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
    text: str | None = None
    """The record itself, if it is no picture; `image` has none then."""
