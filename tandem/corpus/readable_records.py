"""Checks which records a model can take; others stop the work, or are skipped and counted."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

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
from tandem.corpus.records import ImageSource, Record
from tandem.errors import ImageTooLarge, ImageUnreadable, TextEmpty, TextTooLong
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.texts.text import TextPreprocessor
from tandem.model_io.texts.visible_text import TextNotUnicode

Read = TypeVar("Read")


class OnError(StrEnum):
    """Lists what to do about an unusable record."""

    STOP = "stop"
    SKIP = "skip"


class RecordFault(StrEnum):
    """Names what is wrong with a record, as reports print it."""

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
    # A parquet file may name a picture, and its row group may be too large.
    CorpusMalformed: RecordFault.PICTURE_UNREADABLE,
}
_CAPTION_FAULTS: Final[Mapping[type[Exception], RecordFault]] = {
    TextEmpty: RecordFault.CAPTION_EMPTY,
    TextTooLong: RecordFault.CAPTION_TOO_LONG,
    # JSON can encode a lone surrogate.
    TextNotUnicode: RecordFault.CAPTION_UNREADABLE,
}


class RecordUnreadable(ValueError):
    """A record is unusable; the message names it, its file or archive member, and why."""

    def __init__(self, record: Record, fault: RecordFault, why: str) -> None:
        self.fault = fault
        self.record_id = record.record_id
        self.is_uncaptioned = not (record.captions or record.captions_fault)
        self.description = f"{record.record_id!r} ({record.image}): {fault}: {why}"
        super().__init__(f"record {self.description}; or skip it with --on-error skip")


@dataclass
class SkippedRecords(LeftOut):
    """Counts what was left out, including records that a model or server cannot take."""

    unreadable: list[tuple[str, str, str]] = field(default_factory=list)
    """Each record that could not be read: its id, the fault, and a message."""

    def refuse(self, error: CorpusError, fault: str = ReaderFault.MALFORMED) -> None:
        """Adds an error; one that stops the work names the option that skips the record."""
        if not self.goes_on:
            error.args = (f"{error}; or skip it with --on-error skip",)
        super().refuse(error, fault)

    def add(self, error: RecordUnreadable) -> None:
        """Counts a record by its first fault."""
        self.add_record(error.fault, error.description)
        self.unreadable.append((error.record_id, error.fault, error.description))
        if error.is_uncaptioned and self.uncaptioned_count:
            self.uncaptioned_count -= 1


RecordCheck = Callable[[Record], None]
"""Raises RecordUnreadable for an unusable record."""


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """Checks what a model reads: every caption must fit, and the content must be readable.

    It costs as much as reading and decoding the picture.
    """

    content: Callable[[Record], NDArray[Any]]
    """Returns the picture, uint8 [H, W, 3], or its regions, float16 [n, D]; raises RecordUnreadable
    for one that it cannot read."""
    texts: TextPreprocessor
    needs_caption: bool = True
    """Whether a record without captions is a fault, like one with an empty caption."""

    def __call__(self, record: Record) -> None:
        """Raises RecordUnreadable for the first fault."""
        check_captions(record, self.texts, self.needs_caption)
        self.content(record)


def check_captions_sendable(record: Record) -> None:
    """Raises RecordUnreadable if captions are unavailable, or one that no message can carry."""
    _check_captions_there(record)
    captions = {each.caption_id: each.text for each in record.captions}
    for text_id, text in {record.record_id: record.text or "", **captions}.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            why = f"caption {text_id!r}: {error}"
            raise RecordUnreadable(record, RecordFault.CAPTION_UNREADABLE, why) from error


def check_asking(check: RecordCheck, record: Record) -> None:
    """Raises RecordUnreadable for a record that fails the check, or has no caption to ask with."""
    check(record)
    if not record.captions:
        raise RecordUnreadable(record, RecordFault.CAPTION_EMPTY, "it has none to search with")


def check_picture_there(record: Record) -> None:
    """Raises RecordUnreadable if the picture's bytes or the captions are unavailable.

    Their content is not checked: for work that sends records to a server, which checks them.
    """
    check_captions_sendable(record)
    picture_bytes(record)


@dataclass(frozen=True, slots=True)
class HeldPicture(ImageSource):
    """Holds an image source that was already read."""

    image_bytes: bytes
    place: str

    def __str__(self) -> str:
        return self.place

    def read(self) -> bytes:
        """Returns the bytes."""
        return self.image_bytes


def records_with_pictures(records: Iterable[Record], report: SkippedRecords) -> Iterator[Record]:
    """Yields the records that pass check_picture_there, each with its picture's bytes.

    They are read once, so that a file that disappears meanwhile is only that record's fault. A
    record that is a text has none.
    """

    def read(record: Record) -> bytes:
        return picture_bytes(record) if record.text is None else b""

    for record, held in records_read(records, read, report):
        yield replace(record, image=HeldPicture(held, str(record.image)))


def records_read(
    records: Iterable[Record], read: Callable[[Record], Read], report: SkippedRecords
) -> Iterator[tuple[Record, Read]]:
    """Yields the sendable records that `read` reads, each with what it returned."""
    found: list[Read] = []

    def check(record: Record) -> None:
        check_captions_sendable(record)
        found[:] = [read(record)]

    for record in readable_records(records, check, report):
        yield record, found[0]


def readable_records(
    records: Iterable[Record], check: RecordCheck, report: SkippedRecords
) -> Iterator[Record]:
    """Yields the records that pass `check`, in order, as they are read.

    For one that fails, raises its RecordUnreadable, or adds it to a `report` that may continue, as
    a reader does with what it cannot read as a record. A fault of the corpus itself always stops.
    """
    for record in records:
        try:
            check(record)
        except RecordUnreadable as error:
            if not report.goes_on:
                unread = report.unread_lists()
                if error.fault is RecordFault.CAPTION_EMPTY and unread:
                    error.args = (f"{error}; {unread}",)
                raise
            report.add(error)
        else:
            yield record


def check_captions(record: Record, texts: TextPreprocessor, needs_caption: bool = True) -> None:
    """Raises RecordUnreadable unless all captions fit, and a required one exists."""
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


def picture_bytes(record: Record) -> bytes:
    """Returns the encoded picture; raises RecordUnreadable if it is unavailable."""
    try:
        return record.image.read()
    except tuple(_PICTURE_FAULTS) as error:
        fault = next(each for kind, each in _PICTURE_FAULTS.items() if isinstance(error, kind))
        raise RecordUnreadable(record, fault, str(error)) from error


def picture_pixels(record: Record, rules: ImageRules) -> NDArray[np.uint8]:
    """Returns the picture by the rules, uint8 [size, size, 3]; raises RecordUnreadable."""
    image_bytes = picture_bytes(record)
    try:
        return decode_image(image_bytes, rules)
    except (ImageUnreadable, ImageTooLarge) as error:
        raise RecordUnreadable(record, RecordFault.PICTURE_UNREADABLE, error.message) from error


def _check_captions_there(record: Record) -> None:
    if record.captions_fault is not None:
        raise RecordUnreadable(record, RecordFault.CAPTION_UNREADABLE, record.captions_fault)
