"""Lists of captions and files: what was written is what is read, and URLs never are."""

import re
import unicodedata
from pathlib import Path

import pytest

from tandem.corpus.errors import (
    CorpusError,
    CorpusMalformed,
    PictureFileMissing,
    PictureIsUrl,
)
from tandem.corpus.left_out import LeftOut, ReaderFault
from tandem.corpus.readers.caption_list import read_caption_list

TRAIN = "a cat\tcats/1.jpg\none cat\tcats/1.jpg\n\t2.jpg\n"


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A folder of two lists, one with two captions of one picture and none of another."""
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "1.jpg").write_bytes(b"pixels of 1")
    (tmp_path / "2.jpg").write_bytes(b"pixels of 2")
    (tmp_path / "train.tsv").write_text(TRAIN)
    (tmp_path / "val.tsv").write_text("a dog\t2.jpg")
    return tmp_path


def with_lines(folder: Path, *lines: str) -> Path:
    path = folder / "train.tsv"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_lines_of_one_picture_are_one_record(pets: Path) -> None:
    first, second = read_caption_list(pets, "train", language="de")

    assert (first.record_id, first.family, first.split) == ("cats/1.jpg", "cats/1.jpg", "train")
    assert [(c.caption_id, c.text, c.language) for c in first.captions] == [
        ("cats/1.jpg#de-0", "a cat", "de"),
        ("cats/1.jpg#de-1", "one cat", "de"),
    ]
    assert first.image.read() == b"pixels of 1"
    assert [c.text for c in second.captions] == [""]
    assert second.image.read() == b"pixels of 2"


@pytest.mark.parametrize(
    "url",
    [
        "HTTPS://a.example/1.jpg",
        "file:///etc/passwd",
        "//a.example/1.jpg",
        "data:image/png;base64,AAAA",
    ],
)
def test_a_url_is_refused_and_not_fetched(tmp_path: Path, url: str) -> None:
    path = with_lines(tmp_path, f"a cat\t{url}")

    with pytest.raises(PictureIsUrl, match=r"train\.tsv: line 1 names a URL .*never fetched"):
        next(read_caption_list(path, "train"))


@pytest.mark.parametrize("name", ["a\\b.jpg", "no_extension", "12:30.jpg"])
def test_an_odd_name_that_is_there_is_read(tmp_path: Path, name: str) -> None:
    """A backslash and a colon are letters like others here, and a format need not be named."""
    (tmp_path / name).write_bytes(b"pixels")
    (tmp_path / "test.tsv").write_text(f"a cat\t{name}\n")

    [record] = read_caption_list(tmp_path, "test")

    assert record.image.read() == b"pixels"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a cat", "has 1 columns"),
        ("1.JPEG#0\ta cat on a mat.", "has the picture first"),
        ("caption\tPath", "is a header, which these lists have not; delete it"),
        ("a cat\tcats\\1.jpg", "write / for each backslash"),
        ("a cat\t", "names the picture ''"),
        ("a cat\t../1.jpg", "outside the image folder"),
        ("a cat\tcats/1.jpg", "names cats/1.jpg a second time"),
    ],
)
def test_a_broken_line_is_refused_by_its_number(pets: Path, line: str, says: str) -> None:
    path = pets / "train.tsv"
    path.write_text(TRAIN + line + "\n")

    with pytest.raises(CorpusMalformed, match=rf"train\.tsv: line 4 .*{says}"):
        list(read_caption_list(path, "train"))


def test_a_name_that_is_not_utf8_is_refused(pets: Path) -> None:
    """Nothing could say which picture it is."""
    (pets / "train.tsv").write_bytes("a cat\tKätzin.jpg\n".encode("latin-1"))

    with pytest.raises(CorpusMalformed, match=r"train\.tsv: line 1 is not UTF-8"):
        next(read_caption_list(pets, "train"))


def test_lines_that_make_no_record_are_passed_one_by_one(pets: Path) -> None:
    lines = [
        "no tab",
        "a cat\t../1.jpg",
        "a cat\thttp://a.example/1.jpg",
        "a cat\tcats/1.jpg",
    ]
    (pets / "train.tsv").write_text(TRAIN + "\n".join(lines) + "\nlast\tlast.jpg\n")
    left_out = LeftOut(goes_on=True)

    records = list(read_caption_list(pets, "train", left_out=left_out))

    assert [each.record_id for each in records] == ["cats/1.jpg", "2.jpg", "last.jpg"]
    assert left_out.counts == {ReaderFault.MALFORMED: 4}
    for number in range(4, 8):
        assert any(f"train.tsv: line {number} " in told for told in left_out.first)


@pytest.mark.parametrize(
    ("named", "on_disk"),
    [
        ("cafe\N{COMBINING ACUTE ACCENT}.jpg", "café.jpg"),
        ("café/a.jpg", "cafe\N{COMBINING ACUTE ACCENT}/a.JPG"),
    ],
)
def test_a_name_may_be_spelled_otherwise_on_disk(tmp_path: Path, named: str, on_disk: str) -> None:
    path = with_lines(tmp_path, f"a cat\t{named}")
    (tmp_path / on_disk).parent.mkdir(exist_ok=True)
    (tmp_path / on_disk).write_bytes(b"pixels")

    (record,) = read_caption_list(path, "train")

    assert record.image.read() == b"pixels"
    assert record.record_id == unicodedata.normalize("NFC", named)


def test_two_files_whose_names_differ_in_spelling_are_ambiguous(tmp_path: Path) -> None:
    """Which of them is meant is unknown; an exact name is meant."""
    for name in ("a.JPG", "a.Jpg"):
        (tmp_path / name).write_bytes(name.encode())
    path = with_lines(tmp_path, "a cat\ta.jpg", "a dog\ta.JPG")

    other, exact = read_caption_list(path, "train")

    assert exact.image.read() == b"a.JPG"
    with pytest.raises(PictureFileMissing, match=r"a\.jpg, which is not there"):
        other.image.read()


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le"])
def test_other_encodings_are_refused_with_a_remedy(pets: Path, codec: str) -> None:
    (pets / "train.tsv").write_bytes("eine Kätzin\t2.jpg\n".encode(codec))

    try:
        (record,) = read_caption_list(pets, "train")
        told = record.captions_fault or ""
    except CorpusError as error:
        told = str(error)

    assert re.search(r"train\.tsv.* (is UTF-16|is not UTF-8|has NUL bytes)", told)
