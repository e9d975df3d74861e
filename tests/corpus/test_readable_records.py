"""Records that a model can take; at others the work stops, or they are counted by their fault."""

import io
import json
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.readable_records import (
    ModelCheck,
    OnError,
    RecordFault,
    RecordUnreadable,
    SkippedRecords,
    check_picture_there,
    readable_records,
    records_with_pictures,
)
from tandem.corpus.readers.image_sources import MAX_READ_BYTES, ImageFile, NoImage
from tandem.corpus.readers.karpathy import read_karpathy
from tandem.corpus.readers.picture_folder import read_picture_folder
from tandem.corpus.readers.webdataset import read_webdataset
from tandem.corpus.records import Caption, Record
from tandem.pictures.image import MAX_IMAGE_BYTES
from tandem.texts.text import TextPreprocessor
from tandem.training.data.caption_tokenizer import train_tokenizer
from tests.support.pictures.pictures import encoded, plain, png_header

SENTENCE = "two dogs left of one umbrella"
PICTURE = encoded(plain(), "PNG")


@dataclass(frozen=True)
class Bytes:
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
    return ModelCheck(image_size=112, texts=texts)


def a_record(*captions: str, image_bytes: bytes = PICTURE) -> Record:
    numbered = tuple(Caption(f"x#{n}", text, "en") for n, text in enumerate(captions))
    return Record("x", numbered, "test", "x", Bytes(image_bytes))


GOOD = a_record(SENTENCE, "two dogs")
F = RecordFault
BAD = {
    "no captions": (a_record(), F.CAPTION_EMPTY, "it has none"),
    "empty": (a_record(SENTENCE, ""), F.CAPTION_EMPTY, r"caption 'x#1': the text has no words"),
    "blank": (a_record(" \t"), F.CAPTION_EMPTY, "no words"),
    "10,000 words": (
        a_record("dogs " * 10_000),
        F.CAPTION_TOO_LONG,
        r"'x#0': the text has 50,000 bytes",
    ),
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
    "empty file": (a_record(SENTENCE, image_bytes=b""), F.PICTURE_UNREADABLE, "cannot be read"),
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
    "large": (
        a_record(SENTENCE, image_bytes=bytes(MAX_IMAGE_BYTES + 1)),
        F.PICTURE_UNREADABLE,
        "33,554,433 bytes",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_stops_the_work_by_name(check: ModelCheck, name: str) -> None:
    """With where it lies, what is wrong and what to do; the good one before it came through."""
    record, fault, says = BAD[name]
    report = SkippedRecords()
    records = readable_records([GOOD, record, GOOD], check, OnError.STOP, report)

    assert next(records) is GOOD
    with pytest.raises(RecordUnreadable, match=says) as caught:
        next(records)

    assert caught.value.fault is fault
    assert str(caught.value).startswith(f"record 'x' ({record.image}): {fault}: ")
    assert str(caught.value).endswith("; or skip it with --on-error skip")
    assert report.count == 0


def test_bad_records_are_skipped_and_counted_by_fault(check: ModelCheck) -> None:
    """All of those above between good ones, which come through in their order."""
    other = a_record("one umbrella")
    report = SkippedRecords()
    bad = [record for record, _, _ in BAD.values()]

    read = list(readable_records([GOOD, *bad, other], check, OnError.SKIP, report))

    assert read == [GOOD, other]
    assert dict(report.counts) == {
        F.CAPTION_EMPTY: 3,
        F.CAPTION_TOO_LONG: 2,
        F.CAPTION_UNREADABLE: 2,
        F.PICTURE_MISSING: 1,
        F.FILE_MISSING: 1,
        F.PICTURE_UNREADABLE: 5,
    }
    first, *named, last = report.lines()
    assert first.startswith("skipped records: 14 (picture not readable 5, caption empty 3, ")
    assert len(named) == 10
    assert named[0] == "  'x' (in memory): caption empty: it has none; write one"
    assert last == "  and 4 more"


def test_a_report_of_nothing_has_no_lines(check: ModelCheck) -> None:
    """And one of up to ten names them all."""
    report = SkippedRecords()
    list(readable_records([GOOD] * 3, check, OnError.SKIP, report))
    assert list(report.lines()) == []

    list(readable_records([a_record()] * 10, check, OnError.SKIP, report))
    assert len(list(report.lines())) == 11


def test_a_caption_is_read_to_the_last_token(check: ModelCheck) -> None:
    """14 words and the special two are 16, and the positive control of those too long."""
    fits = a_record("dogs " * 14)

    assert list(readable_records([fits], check, OnError.STOP, SkippedRecords())) == [fits]


def test_only_the_picture_is_checked_if_a_server_checks_the_rest(tmp_path: Path) -> None:
    """That its bytes and captions can be had: these may be whatever they are."""
    judged_there = [
        record
        for record, fault, _ in BAD.values()
        if fault not in (F.PICTURE_MISSING, F.FILE_MISSING, F.CAPTION_UNREADABLE)
    ]
    (tmp_path / "large.jpg").touch()
    with (tmp_path / "large.jpg").open("wb") as file:
        file.truncate(MAX_READ_BYTES + 1)
    large = replace(GOOD, image=ImageFile(tmp_path / "large.jpg", "line 3"))
    report = SkippedRecords()

    records = [*(record for record, _, _ in BAD.values()), large]
    read = list(readable_records(records, check_picture_there, OnError.SKIP, report))

    assert read == judged_there
    assert dict(report.counts) == {
        F.CAPTION_UNREADABLE: 2,
        F.PICTURE_MISSING: 1,
        F.FILE_MISSING: 1,
        F.PICTURE_UNREADABLE: 1,
    }


def test_records_are_checked_as_they_are_requested(check: ModelCheck) -> None:
    """A corpus without an end gives its first."""

    def without_end() -> object:
        while True:
            yield GOOD
            yield a_record()

    records = readable_records(without_end(), check, OnError.SKIP, report := SkippedRecords())  # type: ignore[arg-type]

    assert [next(records) for _ in range(3)] == [GOOD] * 3
    assert report.count == 2


def test_a_broken_corpus_always_stops(check: ModelCheck, tmp_path: Path) -> None:
    """It is not a record's fault, and nothing after it could be trusted."""
    for name in ("a.jpg", "a.png"):
        (tmp_path / name).write_bytes(PICTURE)
    records = read_picture_folder(tmp_path, "all")

    with pytest.raises(CorpusMalformed, match="are both 'a'"):
        list(readable_records(records, check, OnError.SKIP, SkippedRecords()))


def test_a_folder_continues_past_a_caption_file_that_is_not_text(
    check: ModelCheck, tmp_path: Path
) -> None:
    """The report says which line of which file; a list of all records can be made before."""
    for name, text in (("a", b"\xff"), ("b", SENTENCE.encode())):
        (tmp_path / f"{name}.png").write_bytes(PICTURE)
        (tmp_path / f"{name}.txt").write_bytes(text)
    records = list(read_picture_folder(tmp_path, "all"))
    report = SkippedRecords()

    read = readable_records(records, check, OnError.SKIP, report)

    assert [record.record_id for record in read] == ["b"]
    assert report.first == [
        f"'a' ({tmp_path}/a.png): caption not readable: {tmp_path}/a.txt: line 1 is not UTF-8 "
        "(invalid start byte); save the file as UTF-8, for example with: iconv -f latin1 -t utf-8"
    ]


def test_a_karpathy_corpus_continues_past_a_missing_picture(
    check: ModelCheck, tmp_path: Path
) -> None:
    """The report says which entry of the file names which picture."""
    names = ("a", "b", "c")
    images = [
        {
            "filename": f"{name}.png",
            "split": "test",
            "sentids": [n],
            "sentences": [{"raw": SENTENCE, "sentid": n}],
        }
        for n, name in enumerate(names)
    ]
    (tmp_path / "dataset.json").write_text(json.dumps({"images": images}))
    for name in ("a", "c"):
        (tmp_path / f"{name}.png").write_bytes(PICTURE)
    records = read_karpathy(tmp_path / "dataset.json", tmp_path, "test")
    report = SkippedRecords()

    read = readable_records(records, check, OnError.SKIP, report)

    assert [record.record_id for record in read] == ["a", "c"]
    assert report.first[0].startswith(f"'b' ({tmp_path}/b.png): picture file not there: ")
    assert "dataset.json: images[1] names" in report.first[0]


def test_a_bad_archive_member_is_named_with_its_archive(check: ModelCheck, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "000.tar", "w") as archive:
        for name, data in (
            ("a.png", b"damaged"),
            ("a.txt", SENTENCE.encode()),
            ("b.png", PICTURE),
            ("b.txt", SENTENCE.encode()),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    report = SkippedRecords()

    records = readable_records(read_webdataset(tmp_path, "all"), check, OnError.SKIP, report)

    assert [record.record_id for record in records] == ["000/b"]
    assert report.first[0].startswith(f"'000/a' ({tmp_path}/000.tar: a.png): picture not readable")


def test_a_picture_that_a_server_gets_is_read_once(tmp_path: Path) -> None:
    """One that goes away behind the check ends nothing: what was read is what is sent."""
    path = tmp_path / "a.png"
    path.write_bytes(PICTURE)
    here = replace(GOOD, image=ImageFile(path, "a"))
    gone = replace(GOOD, image=ImageFile(tmp_path / "b.png", "b"))
    report = SkippedRecords()

    (record,) = records_with_pictures([here, gone], OnError.SKIP, report)
    path.unlink()

    assert (record.image.read(), str(record.image)) == (PICTURE, str(path))
    assert dict(report.counts) == {F.FILE_MISSING: 1}
    with pytest.raises(RecordUnreadable, match="picture file not there"):
        list(records_with_pictures([gone], OnError.STOP, report))
