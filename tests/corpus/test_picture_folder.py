"""A folder of pictures with captions: what was put there is what is read."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given

from tandem.corpus.caption_text import MAX_TEXT_BYTES
from tandem.corpus.errors import (
    CorpusFileMissing,
    CorpusMalformed,
    PictureFileMissing,
    PictureMissing,
    SplitUnknown,
)
from tandem.corpus.picture_folder import read_picture_folder
from tests.corpus.made_corpora import Made, a_folder, as_made, made


def put(folder: Path, each: Made, suffix: str = ".jpg") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (each.name + suffix)).write_bytes(each.pixels)
    (folder / f"{each.name}.txt").write_bytes("\n".join(each.captions).encode())


CAT = Made("cat", ("a cat", "one cat"), b"pixels of cat")
DOG = Made("dog", ("a dog",), b"pixels of dog")


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two pictures in the folder itself."""
    put(tmp_path, DOG)
    put(tmp_path, CAT, ".PNG")
    return tmp_path


def ids(folder: Path, split: str) -> list[str]:
    return [record.record_id for record in read_picture_folder(folder, split)]


def faults(folder: Path) -> dict[str, str]:
    """Returns what is wrong with captions, by their records."""
    records = read_picture_folder(folder, "all")
    return {each.record_id: each.captions_fault for each in records if each.captions_fault}


@given(made(), made())
def test_what_is_put_there_is_what_is_read(whole: list[Made], train: list[Made]) -> None:
    """Any names, captions and bytes, in the folder itself and in a split of it."""
    with a_folder() as folder:
        for each in whole:
            put(folder, each)
        for each in train:
            put(folder / "train", each, ".webp")

        read = {split: list(read_picture_folder(folder, split)) for split in ("all", "train")}

        by_name = {"all": whole, "train": train}
        for split, records in read.items():
            expected = sorted(by_name[split], key=lambda each: each.name)
            prefix = "" if split == "all" else "train/"
            assert [each.record_id for each in records] == [prefix + each.name for each in expected]
            names = [each.record_id.removeprefix(prefix) for each in records]
            assert list(map(as_made, records, names)) == expected


def test_a_record_is_one_picture_with_its_lines(pets: Path) -> None:
    """Its own family, its captions numbered, in the language that was told."""
    cat, dog = read_picture_folder(pets, "all", language="de")

    assert (cat.record_id, cat.family, cat.split) == ("cat", "cat", "all")
    assert [(c.caption_id, c.text, c.language) for c in cat.captions] == [
        ("cat#de-0", "a cat", "de"),
        ("cat#de-1", "one cat", "de"),
    ]
    assert cat.image.read() == b"pixels of cat"
    assert str(dog.image) == f"{pets}/dog.jpg"


def test_a_subfolder_is_a_split_with_all_below_it(pets: Path) -> None:
    """What lies deeper belongs to it; hidden things and a link back up do not."""
    put(pets / "test" / "outdoors", DOG)
    put(pets / "test" / ".cache", CAT)
    put(pets / "test", Made("._dog", (), b"what macOS leaves"))
    (pets / "test" / "again").symlink_to(pets / "test")

    assert ids(pets, "test") == ["test/outdoors/dog"]
    assert ids(pets, "all") == ["cat", "dog"]


def test_an_unknown_split_names_those_with_pictures(pets: Path) -> None:
    """A folder without a picture is none."""
    put(pets / "val", DOG)
    (pets / "notes").mkdir()
    (pets / "notes" / "read me.txt").write_text("not a caption")

    with pytest.raises(SplitUnknown, match=r"split 'test'; its splits are: all, val$"):
        read_picture_folder(pets, "test")


def test_a_folder_that_is_not_there_is_refused_at_the_call(tmp_path: Path) -> None:
    """The error names the path that was tried."""
    with pytest.raises(CorpusFileMissing, match=r"no folder .*nowhere"):
        read_picture_folder(tmp_path / "nowhere", "all")


def test_a_caption_file_alone_is_a_record_whose_picture_is_missing(pets: Path) -> None:
    """It says so when it is read, and its neighbours come through."""
    (pets / "cat.PNG").unlink()

    cat, dog = read_picture_folder(pets, "all")

    assert dog.image.read() == b"pixels of dog"
    with pytest.raises(PictureMissing, match=r"cat\.txt has no picture beside it"):
        cat.image.read()


def test_a_picture_that_goes_away_is_missing_when_it_is_read(pets: Path) -> None:
    """The folder was listed when it was there."""
    cat, _ = read_picture_folder(pets, "all")
    (pets / "cat.PNG").unlink()

    with pytest.raises(PictureFileMissing, match=r"cat names .*cat\.PNG, which is not there"):
        cat.image.read()


def test_a_picture_alone_has_no_captions(pets: Path) -> None:
    """As has one with an empty file."""
    (pets / "cat.txt").unlink()
    (pets / "dog.txt").write_text("\n")

    assert [record.captions for record in read_picture_folder(pets, "all")] == [(), ()]


def test_captions_that_are_no_text_are_told_with_their_record(pets: Path) -> None:
    """And the record behind it comes through; without captions it is, and not with some of them."""
    (pets / "cat.txt").write_bytes(b"a cat\n\xff")

    cat, dog = read_picture_folder(pets, "all")

    assert cat.captions == ()
    assert cat.captions_fault == (
        f"{pets}/cat.txt: line 2 is not UTF-8 (invalid start byte); save it as UTF-8"
    )
    assert cat.image.read() == b"pixels of cat"
    assert (dog.captions[0].text, dog.captions_fault) == ("a dog", None)


def test_a_subfolder_called_all_does_not_hide_the_pictures_beside_it(pets: Path) -> None:
    """Both are called the same; where only one of them has pictures, it is that one."""
    (pets / "all").mkdir()
    assert ids(pets, "all") == ["cat", "dog"]

    put(pets / "all", DOG)
    put(pets / "train", CAT)
    with pytest.raises(CorpusMalformed, match=r"in its subfolder 'all'.*rename the subfolder"):
        read_picture_folder(pets, "all")
    assert ids(pets, "train") == ["train/cat"]

    (pets / "cat.PNG").unlink()
    (pets / "dog.jpg").unlink()
    assert ids(pets, "all") == ["all/dog"]


def test_a_folder_that_cannot_be_listed_is_in_nobody_elses_way(pets: Path) -> None:
    """It is named to those who ask for it. A link to itself cannot be followed even by root."""
    put(pets / "train", DOG)
    put(pets / "val", CAT)
    (pets / "val" / "loop").symlink_to(pets / "val" / "loop")
    (pets / "lost+found").mkdir()
    put(pets / "lost+found", CAT)

    assert ids(pets, "train") == ["train/dog"]
    with pytest.raises(CorpusFileMissing, match=r"val/loop cannot be listed: Too many levels"):
        read_picture_folder(pets, "val")
    with pytest.raises(SplitUnknown, match=r"its splits are: all, train$"):
        read_picture_folder(pets, "test")


@pytest.mark.parametrize(("name", "says"), [("dog.png", "dog.jpg"), ("dog.TXT", "dog.TXT")])
def test_two_files_of_one_kind_and_name_are_refused(pets: Path, name: str, says: str) -> None:
    """The captions could be of either picture, and either file's could be the captions."""
    (pets / name).write_bytes(b"another")
    records = read_picture_folder(pets, "all")

    assert next(records).record_id == "cat"
    with pytest.raises(CorpusMalformed, match=rf"{says} and .* are both 'dog'"):
        next(records)


def test_what_cannot_be_read_is_named(pets: Path) -> None:
    """As on a disk that fails: Linux has a plain file whose first byte never comes."""
    (pets / "cow.jpg").symlink_to("/proc/self/mem")
    _, cow, _ = read_picture_folder(pets, "all")
    with pytest.raises(PictureFileMissing, match=r"cow\.jpg, which cannot be read: Input"):
        cow.image.read()

    (pets / "cow.txt").symlink_to("/proc/self/mem")
    assert re.search(r"cow\.txt cannot be read: Input", faults(pets)["cow"])


def test_hostile_names_and_files_are_refused(pets: Path) -> None:
    """A pipe would be waited on for ever; what is not UTF-8 can be neither sent nor shown."""
    os.mkfifo(pets / "pipe.jpg")
    os.mkfifo(pets / "pipe.txt")
    assert ids(pets, "all") == ["cat", "dog"]

    (pets / "dog.txt").write_bytes(b"x" * (MAX_TEXT_BYTES + 1))
    assert re.search(r"dog\.txt has more than 1,048,576 bytes", faults(pets)["dog"])

    (pets / "dog.txt").unlink()
    Path(os.fsdecode(os.fsencode(pets) + b"/caf\xe9.jpg")).write_bytes(b"pixels")
    with pytest.raises(CorpusMalformed, match=r"name is not UTF-8: 'caf\\udce9'"):
        ids(pets, "all")
