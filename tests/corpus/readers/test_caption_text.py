"""Caption files: what is a line, and what is refused by its number."""

import gzip
from pathlib import Path

import pytest

from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.readers.caption_text import (
    MAX_LINE_BYTES,
    MAX_TEXT_BYTES,
    caption_lines,
    numbered_captions,
    numbered_lines,
)

# A byte order mark, both kinds of line end, a blank line, a line with U+2028 in it, and no end.
TEXT = "\N{ZERO WIDTH NO-BREAK SPACE}a cat\r\n\ndeux\N{LINE SEPARATOR}chats \n třetí"
LINES = ["a cat", "", "deux\N{LINE SEPARATOR}chats ", " třetí"]


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    """Packed or not, and nothing else of a line is changed."""
    (tmp_path / "train.en").write_bytes(TEXT.encode())
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(TEXT.encode()))

    expected = [(number, line.encode()) for number, line in enumerate(LINES, start=1)]
    assert list(numbered_lines(tmp_path / "train.en")) == expected
    assert list(numbered_lines(tmp_path / "train.en.gz")) == expected


def test_blank_lines_between_one_pictures_captions_are_spacing() -> None:
    """The same text as above has three captions."""
    assert caption_lines(TEXT.encode(), "x.txt") == [line for line in LINES if line]
    assert caption_lines(b" \n\n", "x.txt") == []


def test_one_pictures_lines_may_end_in_a_carriage_return() -> None:
    assert caption_lines(b"a cat\ra dog\r", "x.txt") == ["a cat", "a dog"]
    assert caption_lines(b"a cat\r\r\na dog\r\r\n", "x.txt") == ["a cat", "a dog"]
    with pytest.raises(CorpusMalformed, match=r"x\.txt: line 2 is not UTF-8"):
        caption_lines(b"gut\rsch\xf6n\r", "x.txt")


def test_a_list_whose_lines_end_in_a_carriage_return_is_refused(tmp_path: Path) -> None:
    """Read as one line, it would give every picture but one no caption."""
    (tmp_path / "train.en").write_bytes(b"a cat\ra dog\r")

    with pytest.raises(CorpusMalformed, match=r"train.en ends its lines in CR alone.*tr "):
        list(numbered_lines(tmp_path / "train.en"))


def test_a_line_without_an_end_is_not_read_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "train.en"
    path.write_bytes(b"x" * (MAX_LINE_BYTES - 1) + b"\n" + b"x" * (3 * MAX_LINE_BYTES) + b"\nz")
    lines = numbered_lines(path)

    assert len(next(lines)[1]) == 1_048_575
    with pytest.raises(CorpusMalformed, match=r"line 2 has more than 1,048,576 bytes"):
        next(lines)


def test_captions_of_one_picture_are_not_a_list() -> None:
    assert caption_lines(b"x" * MAX_TEXT_BYTES, "x.txt") == ["x" * 1_048_576]
    with pytest.raises(CorpusMalformed, match=r"x\.txt has more than 1,048,576 bytes"):
        caption_lines(b"x" * (MAX_TEXT_BYTES + 1), "x.txt")


PACKED = gzip.compress(b"a line\n" * 9)


@pytest.mark.parametrize(
    "content",
    [b"no gzip", PACKED[:-9]],
    ids=["none", "cut"],
)
def test_a_damaged_archive_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.en.gz"
    path.write_bytes(content)

    with pytest.raises(CorpusMalformed, match=r"train\.en\.gz: line \d+ cannot be read"):
        list(numbered_lines(path))


def test_captions_are_numbered_by_record_and_language() -> None:
    first, second = numbered_captions("cat", ["one", "one"], "de")

    assert (first.caption_id, second.caption_id) == ("cat#de-0", "cat#de-1")
    assert (first.text, first.language) == ("one", "de")
