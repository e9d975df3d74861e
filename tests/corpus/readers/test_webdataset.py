"""WebDataset archives: what was packed is what is read, from its place in the archive."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from tandem.corpus.errors import (
    ArchiveUnsafe,
    CorpusMalformed,
    NothingRead,
    PictureFileMissing,
    PictureMissing,
    SplitUnknown,
)
from tandem.corpus.left_out import FileFault, LeftOut, ReaderFault
from tandem.corpus.readers.caption_text import MAX_TEXT_BYTES
from tandem.corpus.readers.webdataset import read_webdataset
from tandem.corpus.records import Record


def pack(path: Path, files: list[tuple[str, bytes]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


CAT = [("cat.jpg", b"pixels of cat"), ("cat.txt", b"a cat\none cat\n")]
DOG = [("dog.PNG", b"pixels of dog"), ("dog.json", b'{"caption": "ein Hund", "language": "de"}')]


def read(path: Path, split: str = "all") -> list[Record]:
    return list(read_webdataset(path, split))


def said(record: Record) -> list[tuple[str, str]]:
    return [(each.text, each.language) for each in record.captions]


def test_files_of_one_name_are_one_record(tmp_path: Path) -> None:
    others = [
        ("cat.cls", b"3"),
        ("cat.id", b"3"),
        ("bird.cls", b"4"),
        ("._cat.jpg", b"what macOS leaves"),
        ("dog.mask.png", b"a mask"),
    ]
    path = pack(tmp_path / "000.tar", [CAT[0], *DOG, *others, CAT[1], ("README", b"none")])

    cat, dog = read(path)

    assert (cat.record_id, cat.family, cat.split) == ("000/cat", "000/cat", "all")
    assert [each.caption_id for each in cat.captions] == ["000/cat#en-0", "000/cat#en-1"]
    assert said(cat) == [("a cat", "en"), ("one cat", "en")]
    assert said(dog) == [("ein Hund", "de")]
    assert cat.image.read() == b"pixels of cat"
    assert dog.image.read() == b"pixels of dog"
    assert str(dog.image) == f"{path}: dog.PNG"


def test_a_text_file_precedes_json_which_may_give_its_language(tmp_path: Path) -> None:
    fields = b'{"caption": "another", "lang": "fr", "url": "http://a.example/1.jpg"}'
    path = pack(tmp_path / "000.tar", [*CAT, ("cat.json", fields)])

    assert said(read(path)[0]) == [("a cat", "fr"), ("one cat", "fr")]


def test_archives_may_use_the_same_numbers(tmp_path: Path) -> None:
    """The archives' names distinguish their records."""
    for name in ("train/0.tar", "train/1.tar", "val/0.tar"):
        pack(tmp_path / name, CAT)

    assert [each.record_id for each in read(tmp_path, "train")] == ["train/0/cat", "train/1/cat"]
    with pytest.raises(SplitUnknown, match=r"split 'test'; its splits are: train, val;"):
        read_webdataset(tmp_path, "test")


def test_a_record_without_a_picture_says_so_when_it_is_read(tmp_path: Path) -> None:
    missing, there = read(pack(tmp_path / "000.tar", [CAT[1], *DOG]))

    assert there.image.read() == b"pixels of dog"
    with pytest.raises(PictureMissing, match=r"000\.tar: cat has no picture"):
        missing.image.read()


def test_a_picture_without_captions_is_a_record(tmp_path: Path) -> None:
    files = [CAT[0], DOG[0], ("dog.json", b'{"caption": null}')]

    assert [each.captions for each in read(pack(tmp_path / "000.tar", files))] == [(), ()]


def test_a_deleted_archive_is_reported_when_a_picture_is_read(tmp_path: Path) -> None:
    path = pack(tmp_path / "000.tar", CAT)
    (cat,) = read(path)

    path.write_bytes(path.read_bytes()[: 512 + 5])
    with pytest.raises(PictureFileMissing, match=r"000\.tar: cat\.jpg is cut short"):
        cat.image.read()
    path.unlink()
    with pytest.raises(PictureFileMissing, match=r"000\.tar: cat\.jpg cannot be read: no file"):
        cat.image.read()
    path.symlink_to("/proc/self/mem")
    with pytest.raises(PictureFileMissing, match=r"000\.tar: cat\.jpg cannot be read: Input"):
        cat.image.read()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (("dog.txt", b"\xff"), r"dog\.txt: line 1 is not UTF-8"),
        (("dog.txt", b"x" * (MAX_TEXT_BYTES + 1)), r"dog\.txt has more than 1,048,576 bytes"),
        (("dog.json", b"{"), r"dog\.json is not JSON"),
        (("dog.json", b"[" * 100_000), r"dog\.json is not JSON"),
        (("dog.json", b"[]"), r"dog\.json is not a JSON object"),
        (("dog.json", b'{"captions": ["a", 1]}'), r"dog\.json has a caption that is not text"),
        (("dog.json", b'{"language": 1}'), r"dog\.json has a language that is not text"),
    ],
    ids=range(7),
)
def test_unreadable_captions_are_reported_with_their_record(
    tmp_path: Path, file: tuple[str, bytes], says: str
) -> None:
    dog, cat = read(pack(tmp_path / "000.tar", [file, DOG[0], *CAT]))

    assert dog.captions == ()
    assert re.search(rf"000\.tar: {says}", dog.captions_fault or "")
    assert dog.image.read() == b"pixels of dog"
    assert (said(cat)[0], cat.captions_fault) == (("a cat", "en"), None)


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"captions": ["a", "b"], "caption": "c"}, ["a", "b"]),
        ({"captions": [], "caption": "c"}, ["c"]),
        ({"captions": None, "caption": None}, []),
    ],
    ids=range(3),
)
def test_captions_are_those_of_the_first_field_that_has_any(
    tmp_path: Path, fields: dict[str, object], texts: list[str]
) -> None:
    path = pack(tmp_path / "000.tar", [DOG[0], ("dog.json", json.dumps(fields).encode())])

    (dog,) = read(path)

    assert [each.text for each in dog.captions] == texts


def test_an_unsafe_archive_is_refused_when_it_is_due(tmp_path: Path) -> None:
    """The archives before it come through, and of it not even the good files do."""
    pack(tmp_path / "0.tar", CAT)
    with tarfile.open(pack(tmp_path / "1.tar", CAT), "a") as archive:
        link = tarfile.TarInfo("dog.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    records = read_webdataset(tmp_path, "all")

    assert next(records).record_id == "0/cat"
    with pytest.raises(ArchiveUnsafe, match=r"1\.tar: 'dog\.jpg' is a link to '/etc/passwd'"):
        next(records)


def test_names_that_are_not_utf8_are_passed_over(tmp_path: Path) -> None:
    """They could be neither sent nor shown; the archive's others come."""
    path = tmp_path / "000.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        archive.addfile(tarfile.TarInfo("café.jpg"))
        archive.addfile(tarfile.TarInfo("tea.jpg"))
    left_out = LeftOut()

    (record,) = read_webdataset(path, "all", left_out=left_out)

    assert record.record_id == "000/tea"
    assert left_out.first_files == {FileFault.NAME_NOT_UTF8: [f"{path}: 'caf\\udce9.jpg'"]}


def packed(folder: Path, *names: str) -> Path:
    """Returns an archive of files that have their names as contents, pictures and texts alike."""
    return pack(folder / "000.tar", [(name, name.encode()) for name in names])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("22.05.png", "22.05.txt", "22.06.png", "22.06.txt"), {"22.05": ".", "22.06": "."}),
        (("1.5.jpg", "1.5.txt", "1.jpg", "1.txt"), {"1.5": "1.5.txt", "1": "1.txt"}),
        (("n.input.png", "n.output.txt"), {"n": "n.output.txt"}),
        (("n.png", "n.caption.txt"), {"n": "n.caption.txt"}),
        (("1.5.jpg", "1.5.jpg.txt", "1.6.jpg"), {"1.5": "1.5.jpg.txt", "1.6": ""}),
        (("n.png", "n.txt", "n.mask.png", "n.other.txt"), {"n": "n.txt"}),
        (("v1.2/a.png", "v1.2/a.txt", "v1.3/b.png"), {"v1.2/a": "v1.2/a.txt", "v1.3/b": ""}),
        (("./A.JPG", "./A.Txt"), {"A": "./A.Txt"}),
        (
            ("22.05.input.png", "22.05.output.txt", "22.06.input.png", "22.06.output.txt"),
            {"22.05": "22.05.output.txt", "22.06": "22.06.output.txt"},
        ),
        (("1.jpg", "1.5.jpg", "1.6.jpg"), {"1": "", "1.5": "", "1.6": ""}),
    ],
)
def test_names_with_dots_are_paired_by_what_is_there(
    tmp_path: Path, names: tuple[str, ...], expected: dict[str, str]
) -> None:
    records = read(packed(tmp_path, *names))

    found = {each.record_id.removeprefix("000/"): each for each in records}
    assert found.keys() == expected.keys()
    for name, text in expected.items():
        text = f"{name}.txt" if text == "." else text
        assert [each.text for each in found[name].captions] == ([text] if text else [])
        assert found[name].image.read()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("n.left.png", "n.right.png", "n.txt"), "which of .* is ambiguous"),
        (("22.05.png", "22.06.txt"), "which of .* is ambiguous"),
        (("n.png", "n.jpeg", "n.txt"), r"n\.jpeg is a second picture of 'n'"),
    ],
)
def test_names_that_could_be_paired_in_two_ways_are_refused(
    tmp_path: Path, names: tuple[str, ...], why: str
) -> None:
    """A strict reader refuses them; one that continues leaves out only that record."""
    path = packed(tmp_path, *names, "a.png")

    with pytest.raises(CorpusMalformed, match=rf"000\.tar: {why}"):
        read(path)
    left_out = LeftOut(goes_on=True)
    assert [r.record_id for r in read_webdataset(path, "all", left_out=left_out)] == ["000/a"]
    assert left_out.counts == {ReaderFault.MALFORMED: 1}


def test_files_outside_records_are_counted(tmp_path: Path) -> None:
    path = packed(tmp_path, "a.png", "a.mask.png", "a.cls", ".jpg", "b.bmp")
    left_out = LeftOut()

    assert len(list(read_webdataset(path, "all", left_out=left_out))) == 1
    assert left_out.file_counts == {
        FileFault.EXTRA: 1,
        ".cls": 1,
        FileFault.HIDDEN: 1,
        ".bmp": 1,
    }

    with pytest.raises(NothingRead, match=r"nothing was read; passed over: 1 \(\.bmp 1\)"):
        read(packed(tmp_path, "b.bmp"))


def test_concatenated_archives_are_read_to_the_end(tmp_path: Path) -> None:
    parts = [packed(tmp_path, f"{name}.png", f"{name}.txt").read_bytes() for name in "abc"]
    path = tmp_path / "000.tar"
    path.write_bytes(b"".join(parts))

    with tarfile.open(path) as archive:
        assert archive.getnames() == ["a.png", "a.txt"]
    records = read(path)
    assert [each.record_id for each in records] == ["000/a", "000/b", "000/c"]
    assert [each.image.read() for each in records] == [b"a.png", b"b.png", b"c.png"]

    path.write_bytes(b"".join(parts) + b"what is not an archive" * 100)
    with pytest.raises(CorpusMalformed, match=r"000\.tar is (not a whole tar|damaged)"):
        read(path)


def test_concatenated_archives_may_use_the_same_numbers(tmp_path: Path) -> None:
    """Each record is its archive's; where one has the pictures and one the captions, they meet."""
    parts = [packed(tmp_path, *names).read_bytes() for names in (("1.png", "1.txt"), ("2.png",))]
    path = tmp_path / "000.tar"
    path.write_bytes(parts[0] * 2 + parts[1])
    records = read(path)
    assert [each.record_id for each in records] == ["000/1", "000+1/1", "000/2"]
    assert [len(each.captions) for each in records] == [1, 1, 0]

    apart = [packed(tmp_path, *names).read_bytes() for names in (("1.png", "2.png"), ("1.txt",))]
    path.write_bytes(b"".join(apart))
    assert [(each.record_id, len(each.captions)) for each in read(path)] == [
        ("000/1", 1),
        ("000/2", 0),
    ]


def test_a_truncated_archive_yields_its_whole_records(tmp_path: Path) -> None:
    pack(tmp_path / "1.tar", CAT)
    path = pack(tmp_path / "0.tar", [*CAT, *DOG])
    path.write_bytes(path.read_bytes()[: 4 * 512 + 100])
    left_out = LeftOut(goes_on=True)

    records = list(read_webdataset(tmp_path, "all", left_out=left_out))

    assert [each.record_id for each in records] == ["0/cat", "1/cat"]
    assert left_out.counts == {FileFault.DAMAGED: 1}
    with pytest.raises(CorpusMalformed, match=r"0\.tar is"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["train-000.tgz", "train/000.tar.XZ"])
def test_compressed_archives_are_refused_by_name(tmp_path: Path, name: str) -> None:
    pack(tmp_path / "train-001.tar", CAT)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"packed")

    with pytest.raises(CorpusMalformed, match=rf"{name} is compressed; unpack it"):
        read(tmp_path, "train")
    with pytest.raises(SplitUnknown, match=r"its splits are: train \(passed over: 1 \(\..*; pass"):
        read(tmp_path, "test")
    assert len(list(read_webdataset(tmp_path, "train", left_out=LeftOut(goes_on=True)))) == 1
