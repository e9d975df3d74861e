"""Records that a model can take; those that it cannot stop the work, or are skipped and counted."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import (
    CorpusError,
    CorpusMalformed,
    PictureFileMissing,
    PictureMissing,
    PictureOutside,
    PictureTooLarge,
)
from tandem.corpus.left_out import LeftOut, ReaderFault
from tandem.corpus.records import Record
from tandem.errors import ImageTooLarge, ImageUnreadable, TextEmpty, TextTooLong
from tandem.model_io.image import decode_image
from tandem.model_io.text import TextPreprocessor
from tandem.model_io.visible_text import TextNotUnicode


class OnError(StrEnum):
    """What to do about a record that cannot be taken."""

    STOP = "stop"
    SKIP = "skip"


class RecordFault(StrEnum):
    """What is wrong with a record, in the words of a report."""

    PICTURE_MISSING = "no picture"
    FILE_MISSING = "picture file not there"
    PICTURE_UNREADABLE = "picture not readable"
    PICTURE_OUTSIDE = "picture outside the corpus"
    CAPTION_EMPTY = "caption empty"
    CAPTION_TOO_LONG = "caption too long"
    CAPTION_UNREADABLE = "caption not readable"
    REGIONS_MISSING = "no regions"
    REGIONS_UNREADABLE = "regions not readable"


_PICTURE_FAULTS: Final[Mapping[type[Exception], RecordFault]] = {
    PictureMissing: RecordFault.PICTURE_MISSING,
    PictureFileMissing: RecordFault.FILE_MISSING,
    PictureOutside: RecordFault.PICTURE_OUTSIDE,
    PictureTooLarge: RecordFault.PICTURE_UNREADABLE,
    # A parquet file may name a picture, and a row group of it turn out too large.
    CorpusMalformed: RecordFault.PICTURE_UNREADABLE,
}
_CAPTION_FAULTS: Final[Mapping[type[Exception], RecordFault]] = {
    TextEmpty: RecordFault.CAPTION_EMPTY,
    TextTooLong: RecordFault.CAPTION_TOO_LONG,
    # JSON can spell half a character.
    TextNotUnicode: RecordFault.CAPTION_UNREADABLE,
}


class RecordUnreadable(ValueError):
    """A record that cannot be taken; the message names it, its file or archive member, and why."""

    def __init__(self, record: Record, fault: RecordFault, why: str) -> None:
        self.fault = fault
        self.is_uncaptioned = not (record.captions or record.captions_fault)
        self.told = f"{record.record_id!r} ({record.image}): {fault}: {why}"
        super().__init__(f"record {self.told}; or go on past it with --on-error skip")


class SkippedRecords(LeftOut):
    """What was left out, and among it the records that a model or server cannot take."""

    def refuse(self, error: CorpusError, fault: str = ReaderFault.MALFORMED) -> None:
        """As of any account; an error says with what option a command goes on past it."""
        if not self.goes_on:
            error.args = (f"{error}; or go on past it with --on-error skip",)
        super().refuse(error, fault)

    def add(self, error: RecordUnreadable) -> None:
        """Counts a record, by the first thing that is wrong with it."""
        self.add_record(error.fault, error.told)
        if error.is_uncaptioned and self.uncaptioned_count:
            self.uncaptioned_count -= 1


RecordCheck = Callable[[Record], None]
"""Raises RecordUnreadable for a record that cannot be taken."""


class TextCheck(Protocol):
    """A RecordCheck that says by what it reads captions."""

    @property
    def texts(self) -> TextPreprocessor:
        """Returns the model's."""
        ...

    def __call__(self, record: Record) -> None:
        """Raises RecordUnreadable for the first thing that is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """Checks all that a model reads: that the picture decodes, that every caption fits.

    It costs what reading and decoding the picture costs.
    """

    image_size: int
    """Pixels on a side."""
    texts: TextPreprocessor
    needs_caption: bool = True
    """Whether a record without captions is as bad as one with an empty caption."""

    def __call__(self, record: Record) -> None:
        """Raises RecordUnreadable for the first thing that is wrong."""
        self.pixels(record)

    def pixels(self, record: Record) -> NDArray[np.uint8]:
        """Returns the picture, uint8 [image_size, image_size, 3], of a record that passes."""
        check_captions(record, self.texts, self.needs_caption)
        image_bytes = picture_bytes(record)
        try:
            return decode_image(image_bytes, self.image_size)
        except (ImageUnreadable, ImageTooLarge) as error:
            raise RecordUnreadable(record, RecordFault.PICTURE_UNREADABLE, error.message) from error


def check_picture_there(record: Record) -> None:
    """Raises RecordUnreadable unless the picture's bytes can be had, whatever they are.

    And where the captions could not be had. For work that sends records to a server, which judges
    pictures and captions itself.
    """
    _check_captions_sendable(record)
    picture_bytes(record)


@dataclass(frozen=True, slots=True)
class HeldPicture:
    """An image source that was read already."""

    image_bytes: bytes
    place: str

    def __str__(self) -> str:
        return self.place

    def read(self) -> bytes:
        """Returns the bytes."""
        return self.image_bytes


def records_with_pictures(
    records: Iterable[Record], on_error: OnError, report: SkippedRecords
) -> Iterator[Record]:
    """Yields the records that pass check_picture_there, each with its picture's bytes.

    They are read once, so that a file that goes away meanwhile is a record's fault and no more.
    """
    held: list[bytes] = []

    def check(record: Record) -> None:
        _check_captions_sendable(record)
        held[:] = [picture_bytes(record)]

    for record in readable_records(records, check, on_error, report):
        yield replace(record, image=HeldPicture(held[0], str(record.image)))


def readable_records(
    records: Iterable[Record], check: RecordCheck, on_error: OnError, report: SkippedRecords
) -> Iterator[Record]:
    """Yields the records that pass `check`, in their order, as they come.

    At one that does not, raises its RecordUnreadable (stop), or adds it to `report` and goes on
    (skip). A reader that was given `report` does likewise with what it cannot make a record of;
    what is wrong with the corpus and not with one of its records stops either way.
    """
    for record in records:
        try:
            check(record)
        except RecordUnreadable as error:
            if on_error is OnError.STOP:
                raise
            report.add(error)
        else:
            yield record


def check_captions(record: Record, texts: TextPreprocessor, needs_caption: bool = True) -> None:
    """Raises RecordUnreadable unless all captions fit, and there is one where one is needed."""
    _check_captions_there(record)
    if needs_caption and not record.captions:
        raise RecordUnreadable(record, RecordFault.CAPTION_EMPTY, "it has none; write one")
    for caption in record.captions:
        try:
            texts.token_ids(caption.text)
        except tuple(_CAPTION_FAULTS) as error:
            fault = _CAPTION_FAULTS[type(error)]
            why = f"caption {caption.caption_id!r}: {error}"
            raise RecordUnreadable(record, fault, why) from error


def _check_captions_sendable(record: Record) -> None:
    _check_captions_there(record)
    for caption in record.captions:
        try:
            caption.text.encode()
        except UnicodeEncodeError as error:
            why = f"caption {caption.caption_id!r}: {error}"
            raise RecordUnreadable(record, RecordFault.CAPTION_UNREADABLE, why) from error


def picture_bytes(record: Record) -> bytes:
    """Returns the picture as it is encoded; raises RecordUnreadable where it cannot be had."""
    try:
        return record.image.read()
    except tuple(_PICTURE_FAULTS) as error:
        fault = next(each for kind, each in _PICTURE_FAULTS.items() if isinstance(error, kind))
        raise RecordUnreadable(record, fault, str(error)) from error


def _check_captions_there(record: Record) -> None:
    if record.captions_fault is not None:
        raise RecordUnreadable(record, RecordFault.CAPTION_UNREADABLE, record.captions_fault)
