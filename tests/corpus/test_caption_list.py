"""Lists of captions and files: what was written is what is read, and URLs never are."""

from pathlib import Path

import pytest
from hypothesis import given

from tandem.corpus.caption_list import read_caption_list
from tandem.corpus.errors import (
    CorpusFileMissing,
    CorpusMalformed,
    PictureFileMissing,
    PictureIsUrl,
    SplitUnknown,
)
from tests.corpus.made_corpora import Made, a_folder, as_made, made

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


@given(made(min_captions=1))
def test_what_is_written_is_what_is_read(pictures: list[Made]) -> None:
    """Any names, captions and bytes; a tab in a caption is the one thing a list cannot hold."""
    with a_folder() as folder:
        expected = []
        lines = []
        for each in pictures:
            captions = tuple(text.replace("\t", " ") for text in each.captions)
            expected.append(Made(f"{each.name}.jpg", captions, each.pixels))
            (folder / f"{each.name}.jpg").write_bytes(each.pixels)
            lines += [f"{text}\t{each.name}.jpg" for text in captions]
        (folder / "any.tsv").write_bytes("\n".join(lines).encode())

        records = list(read_caption_list(folder, "any"))

        assert [as_made(each, each.record_id) for each in records] == expected


def test_lines_of_one_picture_are_one_record(pets: Path) -> None:
    """In the list's order, an empty caption among them: whoever reads on judges that."""
    first, second = read_caption_list(pets, "train", language="de")

    assert (first.record_id, first.family, first.split) == ("cats/1.jpg", "cats/1.jpg", "train")
    assert [(c.caption_id, c.text, c.language) for c in first.captions] == [
        ("cats/1.jpg#de-0", "a cat", "de"),
        ("cats/1.jpg#de-1", "one cat", "de"),
    ]
    assert first.image.read() == b"pixels of 1"
    assert [c.text for c in second.captions] == [""]
    assert second.image.read() == b"pixels of 2"


def test_one_file_is_one_split(pets: Path) -> None:
    """Given by its own path; its pictures lie beside it."""
    (record,) = read_caption_list(pets / "val.tsv", "val")

    assert (record.record_id, record.image.read()) == ("2.jpg", b"pixels of 2")
    with pytest.raises(SplitUnknown, match=r"val\.tsv has no .* 'train'; its splits are: val; say"):
        read_caption_list(pets / "val.tsv", "train")


def test_an_unknown_split_names_the_lists_that_there_are(pets: Path) -> None:
    """At the call."""
    with pytest.raises(SplitUnknown, match=r"split 'test'; its splits are: train, val; say"):
        read_caption_list(pets, "test")


def test_a_path_that_is_not_there_is_refused_at_the_call(tmp_path: Path) -> None:
    """The error names the path that was tried."""
    with pytest.raises(CorpusFileMissing, match=r"no file or folder .*nowhere"):
        read_caption_list(tmp_path / "nowhere", "train")


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/1.jpg",
        "HTTPS://a.example/1.jpg",
        "ftp://a/1.jpg",
        "file:///etc/passwd",
        "//a.example/1.jpg",
        "data:image/png;base64,AAAA",
    ],
)
def test_a_url_is_refused_and_not_fetched(tmp_path: Path, url: str) -> None:
    """By its line, with what to do."""
    path = with_lines(tmp_path, f"a cat\t{url}")

    with pytest.raises(PictureIsUrl, match=r"train\.tsv: line 1 names a URL .*never fetched"):
        next(read_caption_list(path, "train"))


def test_a_colon_makes_no_url(tmp_path: Path) -> None:
    """Files may be called so."""
    (tmp_path / "12:30.jpg").write_bytes(b"pixels")

    (record,) = read_caption_list(with_lines(tmp_path, "noon\t12:30.jpg"), "train")

    assert record.image.read() == b"pixels"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a cat", "has 1 columns"),
        ("a cat\t1.jpg\t2.jpg", "has 3 columns"),
        ("a cat\t", "names the picture ''"),
        ("a cat\t../1.jpg", "outside the image folder"),
        ("a cat\t/etc/passwd", "outside the image folder"),
        ("a cat\t1\0.jpg", "has NUL bytes in it"),
        ("a cat\tcats/1.jpg", "names cats/1.jpg a second time"),
    ],
)
def test_a_broken_line_is_refused_by_its_number(pets: Path, line: str, says: str) -> None:
    """And says what is wrong with it."""
    path = pets / "train.tsv"
    path.write_text(TRAIN + line + "\n")

    with pytest.raises(CorpusMalformed, match=rf"train\.tsv: line 4 .*{says}"):
        list(read_caption_list(path, "train"))


def test_a_caption_that_is_not_utf8_spoils_its_own_record_alone(pets: Path) -> None:
    """Named by its line; whoever reads on stops there or goes past it."""
    (pets / "train.tsv").write_bytes(TRAIN.replace("one cat", "eine Kätzin").encode("latin-1"))

    first, second = read_caption_list(pets, "train")

    assert (first.record_id, first.captions) == ("cats/1.jpg", ())
    assert f"{pets / 'train.tsv'}: line 2 is not UTF-8" in (first.captions_fault or "")
    assert (second.record_id, second.captions_fault) == ("2.jpg", None)


def test_a_name_that_is_not_utf8_is_refused(pets: Path) -> None:
    """Nothing could say which picture it is."""
    (pets / "train.tsv").write_bytes("a cat\tKätzin.jpg\n".encode("latin-1"))

    with pytest.raises(CorpusMalformed, match=r"train\.tsv: line 1 is not UTF-8"):
        next(read_caption_list(pets, "train"))


def test_blank_lines_are_spacing(pets: Path) -> None:
    """As editors leave one at the end."""
    (pets / "train.tsv").write_text(f"\n{TRAIN} \n\n")

    assert len(list(read_caption_list(pets, "train"))) == 2


def test_a_missing_picture_shows_when_it_is_read(pets: Path) -> None:
    """With the line that names it; the record after it comes through."""
    (pets / "cats" / "1.jpg").unlink()

    missing, there = read_caption_list(pets, "train")

    assert there.image.read() == b"pixels of 2"
    with pytest.raises(PictureFileMissing, match=r"train\.tsv: line 1 names .*cats/1\.jpg"):
        missing.image.read()
