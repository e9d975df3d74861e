"""A folder of pictures with captions: what was put there is what is read."""

import re
import unicodedata
from pathlib import Path

import pytest

from tandem.corpus.errors import (
    CorpusMalformed,
    PictureOutside,
    SplitUnknown,
)
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.image_sources import PICTURE_SUFFIXES
from tandem.corpus.readers.picture_folder import read_picture_folder
from tests.support.corpus.made_corpora import Made, as_made


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


def passed_over(folder: Path, split: str = "all") -> dict[str, list[str]]:
    left_out = LeftOut()
    list(read_picture_folder(folder, split, left_out=left_out))
    return left_out.first_files


def faults(folder: Path) -> dict[str, str]:
    """Returns what is wrong with captions, by their records."""
    records = read_picture_folder(folder, "all")
    return {each.record_id: each.captions_fault for each in records if each.captions_fault}


def test_a_record_is_one_picture_with_its_lines(pets: Path) -> None:
    """It is its own family, with numbered captions in the language that the caller gave."""
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


def test_a_text_without_a_picture_is_a_note(pets: Path) -> None:
    """It is named, and so are the files of other formats; no picture is lost."""
    (pets / "cat.PNG").rename(pets / "cat.bmp")
    (pets / "README\nfirst.txt").write_text("the summer")
    left_out = LeftOut()

    (dog,) = read_picture_folder(pets, "all", left_out=left_out)

    assert dog.image.read() == b"pixels of dog"
    notes = [f"{pets}/README\nfirst.txt", f"{pets}/cat.txt"]
    assert left_out.first_files == {".bmp": [f"{pets}/cat.bmp"], FileFault.NOTE: notes}
    assert "README\\nfirst.txt" in left_out.summary()
    assert "no captions are read from it" in left_out.unread_lists()


def test_a_subfolder_called_all_does_not_hide_pictures_next_to_it(pets: Path) -> None:
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


def test_an_unreadable_subfolder_does_not_stop_other_splits(pets: Path) -> None:
    """It is named and passed over. A link to itself cannot be followed even by root."""
    put(pets / "train", DOG)
    put(pets / "val", CAT)
    (pets / "val" / "loop").symlink_to(pets / "val" / "loop")
    (pets / "lost+found").mkdir()
    put(pets / "lost+found", CAT)

    assert ids(pets, "train") == ["train/dog"]
    assert ids(pets, "val") == ["val/cat"]
    assert passed_over(pets, "val") == {FileFault.UNLISTED: [f"{pets}/val/loop"]}
    with pytest.raises(SplitUnknown, match=r"its splits are: all, train, val \("):
        read_picture_folder(pets, "test")


JPG, PNG = b"\xff\xd8\xff\xe0 pixels \xff\xd9", b"\x89PNG pixels IEND\xaeB`\x82"
HEIC = b"\0\0\0\x18ftypheic pixels"


PAIRS: list[tuple[dict[str, bytes], list[str]]] = [
    ({"1.JPG": JPG, "1.png": PNG}, ["1.JPG"]),
    ({"1.heic": HEIC, "1.jpg": JPG, "1.MOV": b"", "1.CR2": b"", "1.AAE": b""}, ["1.jpg"]),
    ({"1.heic": HEIC, "1.jpg": b""}, ["1.heic"]),
    ({"1.heic": HEIC, "1.mov": b""}, ["1.heic"]),
    ({"1.jpg": JPG[:-2], "1.png": PNG}, ["1.png"]),
    ({"1.jpg": JPG[:-2] + b"a video", "1.heic": HEIC}, ["1.jpg"]),
    ({"IMG.JPG": JPG, "img.png": PNG, "Img.txt": b"a cat"}, ["IMG.JPG"]),
    ({"IMG.JPG": JPG, "img.jpg": JPG, "img.png": PNG}, ["IMG.JPG", "img.jpg"]),
]


def test_one_picture_in_several_formats_is_read_once(tmp_path: Path) -> None:
    """From the file that most likely is read; the others are named."""
    for number, (files, read) in enumerate(PAIRS):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        left_out = LeftOut()

        records = list(read_picture_folder(folder, "all", left_out=left_out))

        assert [each.attributes["file"] for each in records] == read
        assert [each.record_id for each in records] == [Path(each).stem for each in read]
        pictures = sum(Path(name).suffix.lower() in PICTURE_SUFFIXES for name in files)
        assert left_out.file_counts[FileFault.OTHER_FORMAT] == pictures - len(read)
        assert any(each.captions for each in records) == ("Img.txt" in files)


def test_what_other_programs_left_and_what_is_excluded_is_not_read(tmp_path: Path) -> None:
    """Globs hold for names anywhere, with a slash for paths; case and spelling do not matter."""
    nfd = unicodedata.normalize("NFD", "Entwürfe")
    for name in (
        *("2024/@eaDir/a.jpg/XL.jpg", "#recycle/b.jpg", "$Recycle.Bin/S-1/c.jpg", "__MACOSX/d.jpg"),
        *("My.photoslibrary/resources/e.jpg", "My.photoslibrary/originals/f.jpg", "._g.jpg"),
        *("2024/h.jpg", "2024/thumb_h.JPG", f"2024/{nfd}/i.jpg", "out/2024/j.jpg", "2023/k.jpg"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(JPG)
    left_out = LeftOut(excluded=("thumb_*.jpg", "entwürfe", "out/2024/", "2023/*"))

    records = list(read_picture_folder(tmp_path, "test", left_out=left_out))

    assert [each.record_id for each in records] == ["2024/h", "My.photoslibrary/originals/f"]
    assert left_out.file_counts == {FileFault.EXCLUDED: 4, FileFault.OF_OTHER_PROGRAMS: 5}


def test_an_id_that_no_item_can_have_keeps_its_beginning(tmp_path: Path) -> None:
    """Two of one beginning differ by their digests; the attribute has the whole path."""
    for name in ("a", "b"):
        put(tmp_path / ("Ηλιοβασίλεμα/" * 11), Made("Σαντορίνη" * 3 + name, ("x",), JPG))

    first, second = read_picture_folder(tmp_path, "test")

    assert first.record_id[:110] == second.record_id[:110] == ("Ηλιοβασίλεμα/" * 11)[:110]
    assert first.record_id != second.record_id
    assert len(first.captions[0].caption_id.encode()) <= 256
    assert str(first.attributes["file"]).endswith("Σαντορίνηa.jpg")


def test_a_folder_called_like_a_split_does_not_hide_the_others(pets: Path) -> None:
    """They are named, and the split * is all of them."""
    put(pets / "Training", CAT)
    put(pets / "2023" / "Test", DOG)

    assert ids(pets, "train") == ["Training/cat"]
    assert passed_over(pets, "train")[FileFault.SUBFOLDER] == [f"{pets}/2023"]
    assert ids(pets, "*") == ["2023/Test/dog", "Training/cat", "cat", "dog"]


def test_links_that_lead_out_of_the_folder_are_refused(
    pets: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    put(outside, CAT)
    (pets / "dog.txt").unlink()
    (pets / "dog.txt").symlink_to(outside / "cat.txt")
    (pets / "hop").symlink_to(outside / "cat.jpg")
    (pets / "out.jpg").symlink_to(pets / "hop")
    (pets / "in.jpg").symlink_to(pets / "cat.PNG")
    (pets / "album").symlink_to(outside)
    (pets / "up.jpg").symlink_to(f"../{outside.name}/cat.jpg")

    cat, dog, inside, *out = read_picture_folder(pets, "all")

    assert re.search(
        r"dog\.txt is a link out of the corpus, to .*cat\.txt", dog.captions_fault or ""
    )
    assert (cat.image.read(), inside.image.read()) == (b"pixels of cat", b"pixels of cat")
    assert [each.record_id for each in out] == ["out", "up"]
    for each in out:
        with pytest.raises(
            PictureOutside, match=r"names .*\.jpg, which is a link out of the corpus"
        ):
            each.image.read()
    assert passed_over(pets)[FileFault.LEADS_OUT] == [f"{pets}/album"]

    (pets / "train").symlink_to(outside)
    with pytest.raises(SplitUnknown, match=rf"split 'train'.* link out .*{pets}/train"):
        read_picture_folder(pets, "train")
    root = tmp_path_factory.mktemp("links") / "root"
    root.symlink_to(outside)
    assert [each.image.read() for each in read_picture_folder(root, "all")] == [b"pixels of cat"]


def test_files_of_other_formats_are_counted(pets: Path) -> None:
    for name in ("a.bmp", "b.BMP", "c.gif", "d.tif", "Thumbs.db", "notes", ".hidden.jpg"):
        (pets / name).write_bytes(b"")
    for name in ("._cat.jpg", ".DS_Store"):
        (pets / name).write_bytes(b"")
    for name in ("e.jfif", "f.JPE", "g.Jpeg"):
        (pets / name).write_bytes(b"pixels")
    left_out = LeftOut()

    records = list(read_picture_folder(pets, "all", left_out=left_out))

    assert [each.record_id for each in records] == ["cat", "dog", "e", "f", "g"]
    assert left_out.file_counts == {
        ".bmp": 2,
        ".gif": 1,
        ".tif": 1,
        "no extension": 1,
        "hidden": 1,
    }
    assert left_out.first_files[".bmp"] == [f"{pets}/a.bmp", f"{pets}/b.BMP"]
    assert left_out.uncaptioned_count == 3
    assert "passed over: 6 (.bmp 2" in "; ".join(left_out.lines())


def test_a_folder_without_a_picture_that_is_read_says_what_it_has(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.bmp").write_bytes(b"")

    with pytest.raises(SplitUnknown, match=r"passed over: 3 \(\.bmp 3\)"):
        read_picture_folder(tmp_path, "test")


def test_names_in_nfc_and_nfd_meet(tmp_path: Path) -> None:
    """A picture's and its captions'; two pictures that differ in that alone are one name."""
    nfc, nfd = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    (tmp_path / f"{nfc}.jpg").write_bytes(b"pixels")
    (tmp_path / f"{nfd}.txt").write_text("a cafe")

    (record,) = read_picture_folder(tmp_path, "all")
    assert (record.record_id, record.captions[0].text) == (nfc, "a cafe")

    (tmp_path / f"{nfd}.jpg").write_bytes(b"others")
    assert ids(tmp_path, "all") == [nfc]
    assert len(passed_over(tmp_path)[FileFault.OTHER_FORMAT]) == 1


def test_captions_may_be_called_by_the_pictures_whole_name(tmp_path: Path) -> None:
    put(tmp_path, CAT)
    (tmp_path / "cat.txt").rename(tmp_path / "cat.jpg.txt")

    (record,) = read_picture_folder(tmp_path, "all")

    assert as_made(record, "cat") == CAT


@pytest.mark.parametrize("split", ["test", "anything"])
def test_a_folder_without_subfolders_is_the_requested_split(pets: Path, split: str) -> None:
    records = list(read_picture_folder(pets, split))
    assert [(each.record_id, each.split) for each in records] == [("cat", split), ("dog", split)]
    assert read_picture_folder(pets, split).is_undivided

    put(pets / "holidays", DOG)
    if split == "anything":
        with pytest.raises(SplitUnknown, match=r"its splits are: all, holidays; pass --split all"):
            read_picture_folder(pets, split)
    else:
        assert ids(pets, split) == ["cat", "dog", "holidays/dog"]
    assert ids(pets, "holidays") == ["holidays/dog"]
    assert ids(pets, "all") == ["cat", "dog"]
    assert passed_over(pets)[FileFault.SUBFOLDER] == [f"{pets}/holidays"]


def test_splits_further_down_are_not_read_as_one(tmp_path: Path) -> None:
    """What lies in data/train and data/test is two splits of data, and none of its parent's."""
    for split in ("train", "test"):
        put(tmp_path / "data" / split / "more", DOG)

    with pytest.raises(SplitUnknown, match=rf"{tmp_path}/data has \w+/: give that folder"):
        read_picture_folder(tmp_path, "test")
    assert ids(tmp_path / "data", "test") == ["test/more/dog"]
    assert ids(tmp_path, "all") == ["data/test/more/dog", "data/train/more/dog"]
    put(tmp_path / "data", CAT)
    assert ids(tmp_path / "data" / "test", "train") == ["more/dog"]


@pytest.mark.parametrize(("there", "asked"), [("Validation", "dev"), ("dev", "val")])
def test_a_split_may_be_requested_by_a_synonym(pets: Path, there: str, asked: str) -> None:
    put(pets / there, DOG)
    put(pets / "train", CAT)

    assert ids(pets, asked) == [f"{there}/dog"]

    put(pets / "dev", CAT)
    put(pets / "val", CAT)
    assert f"{asked}/cat" in ids(pets, asked)
    assert FileFault.OTHER_SPLIT in passed_over(pets, asked)


def test_no_two_items_have_one_id(pets: Path) -> None:
    """A caption's id is made of its picture's name, and another picture may be called so."""
    (pets / "dog#en-0.jpg").write_bytes(b"pixels")

    with pytest.raises(CorpusMalformed, match=r"would be called 'dog#en-0', as is a record"):
        ids(pets, "all")
