"""Records that a model can take; at others the work stops, or they are counted by their fault."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from tandem.corpus.readable_records import (
    ModelCheck,
    RecordFault,
    RecordUnreadable,
    SkippedRecords,
    check_captions_sendable,
    check_picture_there,
    picture_pixels,
    readable_records,
    records_with_pictures,
)
from tandem.corpus.readers.image_sources import MAX_READ_BYTES, ImageFile, NoImage
from tandem.corpus.records import Caption, ImageSource, Record
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.texts.text import TextPreprocessor
from tests.support.pictures.pictures import encoded, plain, png_header

SENTENCE = "two dogs left of one umbrella"
PICTURE = encoded(plain(), "PNG")


@dataclass(frozen=True)
class Bytes(ImageSource):
    """An image source in memory."""

    image_bytes: bytes

    def __str__(self) -> str:
        return "in memory"

    def read(self) -> bytes:
        """Returns them."""
        return self.image_bytes


@pytest.fixture(scope="module")
def check() -> ModelCheck:
    """Of a model that takes 16 tokens."""
    texts = TextPreprocessor(train_tokenizer([SENTENCE], 200), max_text_tokens=16)
    return ModelCheck(partial(picture_pixels, rules=ImageRules(size=112)), texts)


def a_record(*captions: str, image_bytes: bytes = PICTURE) -> Record:
    numbered = tuple(Caption(f"x#{n}", text, "en") for n, text in enumerate(captions))
    return Record("x", numbered, "test", "x", Bytes(image_bytes))


GOOD = a_record(SENTENCE, "two dogs")
F = RecordFault
BAD = {
    "no captions": (a_record(), F.CAPTION_EMPTY, "it has none"),
    "empty": (a_record(SENTENCE, ""), F.CAPTION_EMPTY, r"caption 'x#1': the text has no words"),
    "15 words": (a_record("dogs " * 15), F.CAPTION_TOO_LONG, "has 17 tokens, the limit is 16"),
    "captions of no text": (
        replace(a_record(), captions_fault="x.txt: line 1 is not UTF-8"),
        F.CAPTION_UNREADABLE,
        "x.txt: line 1 is not UTF-8",
    ),
    "lone surrogate": (a_record("\ud83d"), F.CAPTION_UNREADABLE, "a lone surrogate"),
    "no picture": (
        replace(GOOD, image=NoImage("a.txt", "no picture next to it")),
        F.PICTURE_MISSING,
        "a.txt has no picture next to it",
    ),
    "file not there": (
        replace(GOOD, image=ImageFile(Path("nowhere/a.jpg"), "list.tsv: line 3")),
        F.FILE_MISSING,
        "list.tsv: line 3 names nowhere/a.jpg",
    ),
    "no image": (
        a_record(SENTENCE, image_bytes=b"<html>"),
        F.PICTURE_UNREADABLE,
        "not a JPEG, PNG or WebP",
    ),
    "cut short": (
        a_record(SENTENCE, image_bytes=PICTURE[:-30]),
        F.PICTURE_UNREADABLE,
        "cannot be read",
    ),
    "bomb": (
        a_record(SENTENCE, image_bytes=png_header(60_000, 60_000)),
        F.PICTURE_UNREADABLE,
        "3,600,000,000 pixels",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_stops_the_work_by_name(check: ModelCheck, name: str) -> None:
    record, fault, says = BAD[name]
    report = SkippedRecords()
    records = readable_records([GOOD, record, GOOD], check, report)

    assert next(records) is GOOD
    with pytest.raises(RecordUnreadable, match=says) as caught:
        next(records)

    assert caught.value.fault is fault
    assert str(caught.value).startswith(f"record 'x' ({record.image}): {fault}: ")
    assert str(caught.value).endswith("; or skip it with --on-error skip")
    assert report.count == 0


def test_bad_records_are_skipped_and_counted_by_fault(check: ModelCheck) -> None:
    other = a_record("one umbrella")
    report = SkippedRecords(goes_on=True)
    bad = [record for record, _, _ in BAD.values()]

    read = list(readable_records([GOOD, *bad, other], check, report))

    assert read == [GOOD, other]
    texts = [replace(GOOD, captions=(), text=text) for text in ("a cup", "half \ud83d")]
    skips = SkippedRecords(goes_on=True)
    assert list(readable_records(texts, check_captions_sendable, skips)) == texts[:1]
    assert dict(report.counts) == {
        F.CAPTION_EMPTY: 2,
        F.CAPTION_TOO_LONG: 1,
        F.CAPTION_UNREADABLE: 2,
        F.PICTURE_MISSING: 1,
        F.FILE_MISSING: 1,
        F.PICTURE_UNREADABLE: 3,
    }
    first, *named = report.lines()
    assert first.startswith("skipped records: 10 (picture not readable 3, caption empty 2, ")
    assert named[0] == "  'x' (in memory): caption empty: it has none; write one"


def test_a_caption_is_read_to_the_last_token(check: ModelCheck) -> None:
    """14 words and the special two are 16, and the positive control of those too long."""
    fits = a_record("dogs " * 14)

    assert list(readable_records([fits], check, SkippedRecords())) == [fits]


def test_only_the_picture_is_checked_if_a_server_checks_the_rest(tmp_path: Path) -> None:
    judged_there = [
        record
        for record, fault, _ in BAD.values()
        if fault not in (F.PICTURE_MISSING, F.FILE_MISSING, F.CAPTION_UNREADABLE)
    ]
    (tmp_path / "large.jpg").touch()
    with (tmp_path / "large.jpg").open("wb") as file:
        file.truncate(MAX_READ_BYTES + 1)
    large = replace(GOOD, image=ImageFile(tmp_path / "large.jpg", "line 3"))
    report = SkippedRecords(goes_on=True)

    records = [*(record for record, _, _ in BAD.values()), large]
    read = list(readable_records(records, check_picture_there, report))

    assert read == judged_there
    assert dict(report.counts) == {
        F.CAPTION_UNREADABLE: 2,
        F.PICTURE_MISSING: 1,
        F.FILE_MISSING: 1,
        F.PICTURE_UNREADABLE: 1,
    }


def test_a_picture_that_a_server_gets_is_read_once(tmp_path: Path) -> None:
    """One that goes away behind the check ends nothing: what was read is what is sent."""
    path = tmp_path / "a.png"
    path.write_bytes(PICTURE)
    here = replace(GOOD, image=ImageFile(path, "a"))
    gone = replace(GOOD, image=ImageFile(tmp_path / "b.png", "b"))
    report = SkippedRecords(goes_on=True)

    (record,) = records_with_pictures([here, gone], report)
    path.unlink()

    assert (record.image.read(), str(record.image)) == (PICTURE, str(path))
    assert dict(report.counts) == {F.FILE_MISSING: 1}
    with pytest.raises(RecordUnreadable, match="picture file not there"):
        list(records_with_pictures([gone], SkippedRecords()))
