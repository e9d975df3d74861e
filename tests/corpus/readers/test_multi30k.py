"""Multi30k: line by line the same pictures, in each variant's own files."""

import gzip
from pathlib import Path

import pytest

from tandem.corpus.errors import (
    CorpusFileMissing,
    CorpusMalformed,
    SplitUnknown,
)
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.multi30k import read_multi30k
from tandem.corpus.records import Record

IMAGES = "images"


def lines(path: Path, *texts: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(text + "\n" for text in texts).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def with_pictures(folder: Path, *names: str) -> Path:
    (folder / IMAGES).mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / IMAGES / name).write_bytes(b"pixels of " + name.encode())
    return folder


def read(folder: Path, split: str, variant: str | None = None) -> list[Record]:
    return list(read_multi30k(folder, folder / IMAGES, split, variant))  # type: ignore[arg-type]


def said(record: Record) -> list[tuple[str, str, str]]:
    return [(each.caption_id, each.text, each.language) for each in record.captions]


@pytest.fixture
def task1(tmp_path: Path) -> Path:
    """Four languages of two training pictures, and a test split without Czech."""
    lines(tmp_path / "train_images.txt", "20.jpg", "10.jpg")
    lines(tmp_path / "train.en", "two men", "a dog")
    lines(tmp_path / "train.de", "zwei Männer", "ein Hund")
    lines(tmp_path / "train.fr", "deux hommes", "un chien")
    lines(tmp_path / "train.cs", "dva muži", "pes")
    lines(tmp_path / "test_2017_mscoco_images.txt", "COCO_val2014_30.jpg#367178")
    lines(tmp_path / "test_2017_mscoco.en", "a cat")
    lines(tmp_path / "test_2017_mscoco.fr", "un chat")
    return with_pictures(tmp_path, "20.jpg", "10.jpg", "COCO_val2014_30.jpg")


@pytest.fixture
def task2(tmp_path: Path) -> Path:
    """As published: packed, captions and lists in folders of their own."""
    folder = tmp_path / "task2"
    lines(folder / "image_splits" / "val_images.txt", "1.jpg", "2.jpg")
    for number in range(1, 6):
        for language in ("en", "de"):
            texts = (f"{language} {number} of {name}" for name in (1, 2))
            lines(folder / "raw" / f"val.{number}.{language}.gz", *texts)
    return with_pictures(folder, "1.jpg", "2.jpg")


def test_task_1_has_one_caption_a_language(task1: Path) -> None:
    first, second = read(task1, "train")

    assert (first.record_id, first.family, first.split) == ("20", "20", "train")
    assert said(second) == [
        ("10#cs-0", "pes", "cs"),
        ("10#de-0", "ein Hund", "de"),
        ("10#en-0", "a dog", "en"),
        ("10#fr-0", "un chien", "fr"),
    ]
    assert first.image.read() == b"pixels of 20.jpg"


def test_a_split_has_the_languages_that_it_has_files_for(task1: Path) -> None:
    (record,) = read(task1, "test_2017_mscoco")

    assert [caption.language for caption in record.captions] == ["en", "fr"]
    assert record.image.read() == b"pixels of COCO_val2014_30.jpg"


def test_task_2_has_five_captions_a_language(task2: Path) -> None:
    _, second = read(task2, "val")

    assert said(second) == [
        (f"2#{language}-{number}", f"{language} {number + 1} of 2", language)
        for language in ("de", "en")
        for number in range(5)
    ]


def test_a_folder_of_both_variants_is_read_by_the_variants_name(task1: Path) -> None:
    """Unnamed it is refused: one has one right caption where the other has five."""
    for number in (1, 2):
        lines(task1 / f"train.{number}.en", f"{number} of 20", f"{number} of 10")

    with pytest.raises(CorpusMalformed, match=r"both variants, task1 and task2; move each"):
        read(task1, "train")
    assert [c.text for c in read(task1, "train", "task1")[1].captions][2:3] == ["a dog"]
    assert [c.text for c in read(task1, "train", "task2")[1].captions] == ["1 of 10", "2 of 10"]


def test_other_files_next_to_the_captions_are_ignored(task2: Path) -> None:
    """Of two-letter endings only a split's are languages: with a picture list of the same name."""
    for name in ("README.md", "raw/notes.md"):
        lines(task2 / name, "Multi30k, as published")

    assert len(read(task2, "val")) == 2
    with pytest.raises(SplitUnknown, match=r"its splits are: val;"):
        read(task2, "train")


def test_the_folder_above_the_variants_is_recognised(task2: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusFileMissing, match=r"holds the variants task2; give one: .*/task2$"):
        read(tmp_path, "val")


def test_an_unknown_split_names_those_with_a_picture_list(task1: Path) -> None:
    """Captions without one are not split: their pictures are unknown."""
    lines(task1 / "test_2018_flickr.en", "a bird")

    with pytest.raises(SplitUnknown, match=r"its splits are: test_2017_mscoco, train;"):
        read_multi30k(task1, task1, "test_2018_flickr")


@pytest.mark.parametrize(
    ("texts", "says"), [(["one"], "has 1 lines"), (["1", "2", "3"], "has more than 2 lines")]
)
def test_files_that_are_not_parallel_are_refused(task1: Path, texts: list[str], says: str) -> None:
    """At the call: every caption after the gap would be another picture's."""
    lines(task1 / "train.fr", *texts)

    with pytest.raises(CorpusMalformed, match=rf"train\.fr {says}, train_images\.txt has 2"):
        read_multi30k(task1, task1, "train")


def test_a_file_that_is_also_there_packed_is_read_once(task1: Path) -> None:
    lines(task1 / "train.en.gz", "packed", "packed")
    lines(task1 / "raw" / "train.en", "raw", "raw")

    first, _ = read(task1, "train")

    assert [c.text for c in first.captions if c.language == "en"] == ["two men"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("20.jpg", r"line 2 lists 20\.jpg a second time"),
        ("../10.jpg", "line 2 names .*outside the image folder"),
    ],
)
def test_a_bad_picture_name_is_refused_by_its_line(task1: Path, name: str, says: str) -> None:
    lines(task1 / "train_images.txt", "20.jpg", name)

    with pytest.raises(CorpusMalformed, match=rf"train_images\.txt: {says}"):
        read(task1, "train")


def test_pictures_that_make_no_record_are_passed_one_by_one(task1: Path) -> None:
    names = ("20.jpg", "../x.jpg", "20.jpg", "", "10.jpg")
    lines(task1 / "train_images.txt", *names)
    for language in ("en", "de", "fr", "cs"):
        if (task1 / f"train.{language}").exists():
            lines(task1 / f"train.{language}", *(f"of line {n}" for n in range(1, 6)))
    left_out = LeftOut(goes_on=True)

    records = list(read_multi30k(task1, task1 / IMAGES, "train", left_out=left_out))

    assert [(each.record_id, each.captions[0].text) for each in records] == [
        ("20", "of line 1"),
        ("10", "of line 5"),
    ]
    assert left_out.count == 3
