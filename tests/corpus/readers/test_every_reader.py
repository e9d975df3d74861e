"""What every layout holds: a corpus is read as it was written, and a fault affects one record."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from tandem.corpus.errors import (
    CorpusFileMissing,
    PictureFileMissing,
    PictureOutside,
    SplitUnknown,
)
from tandem.corpus.readers.caption_list import read_caption_list
from tandem.corpus.readers.karpathy import read_karpathy
from tandem.corpus.readers.multi30k import read_multi30k
from tandem.corpus.readers.picture_folder import read_picture_folder
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.table import read_table
from tandem.corpus.readers.webdataset import read_webdataset
from tests.support.corpus.made_corpora import Made, a_folder, as_made, made

CAT = Made("cat", ("a cat", "one cat"), b"pixels of cat")
DOG = Made("dog", ("a dog",), b"pixels of dog")


@dataclass(frozen=True)
class Layout:
    """Writes a corpus of one split, train, and reads it."""

    write: Callable[[Path, Sequence[Made]], None]
    read: Callable[[Path, str], RecordStream]
    pictures: str | None = None
    """The folder of the picture files, if they are files."""
    captions: str | None = None
    """The file of cat's captions, if it is a text."""
    captions_kept: int | None = None
    """How many of a picture's captions it holds."""


def _write_pictures(folder: Path, pictures: Sequence[Made]) -> None:
    folder.mkdir(exist_ok=True)
    for each in pictures:
        (folder / f"{each.name}.jpg").write_bytes(each.pixels)


def _write_list(folder: Path, pictures: Sequence[Made]) -> None:
    _write_pictures(folder, pictures)
    lines = [f"{text}\t{each.name}.jpg" for each in pictures for text in each.captions]
    (folder / "train.tsv").write_bytes("\n".join(lines).encode())


def _write_multi30k(folder: Path, pictures: Sequence[Made]) -> None:
    _write_pictures(folder / "images", pictures)
    names, texts = ([f"{each.name}.jpg" for each in pictures], [p.captions[0] for p in pictures])
    for name, lines in (("train.txt", names), ("train.en", texts)):
        (folder / name).write_bytes("\n".join(lines).encode())


def _write_karpathy(folder: Path, pictures: Sequence[Made]) -> None:
    _write_pictures(folder, pictures)
    images = [
        {
            "filename": f"{each.name}.jpg",
            "split": "train",
            "sentids": list(range(len(each.captions))),
            "sentences": [{"raw": text, "sentid": n} for n, text in enumerate(each.captions)],
        }
        for each in pictures
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": images}))


def _write_folder(folder: Path, pictures: Sequence[Made]) -> None:
    _write_pictures(folder / "train", pictures)
    for each in pictures:
        (folder / "train" / f"{each.name}.txt").write_bytes("\n".join(each.captions).encode())


def _packer(tar_format: int, suffix: str) -> Callable[[Path, Sequence[Made]], None]:
    def write(folder: Path, pictures: Sequence[Made]) -> None:
        with tarfile.open(folder / "train-0.tar", "w", format=tar_format) as archive:
            for each in pictures:
                said = json.dumps({"captions": each.captions})
                text = said if suffix == ".json" else "\n".join(each.captions)
                for end, data in ((suffix, text.encode()), (".webp", each.pixels)):
                    info = tarfile.TarInfo(each.name + end)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))

    return write


def _tabler(packed: str, *, is_struct: bool) -> Callable[[Path, Sequence[Made]], None]:
    def write(folder: Path, pictures: Sequence[Made]) -> None:
        images = [{"bytes": each.pixels, "path": each.name} for each in pictures]
        struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        columns = {
            "id": [each.name for each in pictures],
            "image": pa.array(images, struct) if is_struct else [each.pixels for each in pictures],
            "captions": [list(each.captions) for each in pictures],
        }
        path = folder / "train-0.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=2, compression=packed)

    return write


LAYOUTS = {
    "list": Layout(_write_list, read_caption_list, "", "train.tsv"),
    "multi30k": Layout(
        _write_multi30k,
        lambda folder, split: read_multi30k(folder, folder / "images", split),
        "images",
        "train.en",
        captions_kept=1,
    ),
    "karpathy": Layout(
        _write_karpathy,
        lambda folder, split: read_karpathy(folder / "dataset.json", folder, split),
        "",
    ),
    "folder": Layout(_write_folder, read_picture_folder, "train", "train/cat.txt"),
    "webdataset": Layout(_packer(tarfile.GNU_FORMAT, ".txt"), read_webdataset),
    "webdataset json": Layout(_packer(tarfile.PAX_FORMAT, ".json"), read_webdataset),
    "parquet": Layout(_tabler("zstd", is_struct=False), read_table),
    "parquet struct": Layout(_tabler("snappy", is_struct=True), read_table),
}
each_layout = pytest.mark.parametrize("name", LAYOUTS)
each_of_files = pytest.mark.parametrize(
    "name", [name for name, each in LAYOUTS.items() if each.pictures is not None]
)
each_of_texts = pytest.mark.parametrize(
    "name", [name for name, each in LAYOUTS.items() if each.captions is not None]
)


@each_layout
@given(pictures=made(min_captions=1))
def test_a_written_corpus_is_read_back(name: str, pictures: list[Made]) -> None:
    """Any names, captions and bytes, in the order of the file or of the names."""
    layout = LAYOUTS[name]
    # A tab in a caption is the one thing that a list cannot hold.
    pictures = [
        Made(each.name, tuple(text.replace("\t", " ") for text in each.captions), each.pixels)
        for each in pictures
    ]
    if name == "folder":
        pictures.sort(key=lambda each: each.name)
    with a_folder() as folder:
        layout.write(folder, pictures)

        records = list(layout.read(folder, "train"))

        names = [each.record_id.rpartition("/")[2].removesuffix(".jpg") for each in records]
        assert list(map(as_made, records, names)) == [
            Made(each.name, each.captions[: layout.captions_kept], each.pixels) for each in pictures
        ]


@each_layout
def test_a_split_or_path_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    LAYOUTS[name].write(tmp_path, [CAT, DOG])

    with pytest.raises(SplitUnknown, match=r"split 'extra'; its splits are: train;"):
        LAYOUTS[name].read(tmp_path, "extra")
    with pytest.raises(CorpusFileMissing, match="nowhere"):
        LAYOUTS[name].read(tmp_path / "nowhere", "train")


@each_of_texts
def test_a_caption_that_is_not_utf8_affects_only_its_record(name: str, tmp_path: Path) -> None:
    """It is named by its line; the reader's caller stops there or skips it."""
    layout = LAYOUTS[name]
    layout.write(tmp_path, [CAT, DOG])
    path = tmp_path / str(layout.captions)
    path.write_bytes(path.read_bytes().replace(b"a cat", b"a c\xe4t"))

    cat, dog = layout.read(tmp_path, "train")

    assert cat.captions == ()
    assert f"{path}: line 1 is not UTF-8" in (cat.captions_fault or "")
    assert (dog.captions[0].text, dog.captions_fault) == ("a dog", None)


@each_of_files
def test_a_missing_picture_shows_when_it_is_read(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    layout.write(tmp_path, [CAT, DOG])
    missing, there = layout.read(tmp_path, "train")

    (tmp_path / str(layout.pictures) / "cat.jpg").unlink()

    assert there.image.read() == b"pixels of dog"
    with pytest.raises(PictureFileMissing, match=r"names .*cat\.jpg, which is not there"):
        missing.image.read()


@each_of_files
def test_links_out_of_the_corpus_are_refused(name: str, tmp_path: Path) -> None:
    """Of pictures and of texts; inside, a link may lead anywhere."""
    layout, corpus = LAYOUTS[name], tmp_path / "corpus"
    corpus.mkdir()
    layout.write(corpus, [CAT, DOG])
    (tmp_path / "secret").write_text("secret")
    for picture, target in (("cat", tmp_path / "secret"), ("dog", corpus / "inside.jpg")):
        (corpus / "inside.jpg").write_bytes(b"pixels")
        path = corpus / str(layout.pictures) / f"{picture}.jpg"
        path.unlink()
        path.symlink_to(target)

    out, inside = layout.read(corpus, "train")

    assert inside.image.read() == b"pixels"
    with pytest.raises(PictureOutside, match=r"cat\.jpg, which is a link out of the corpus"):
        out.image.read()
    if layout.captions is not None:
        (corpus / layout.captions).unlink()
        (corpus / layout.captions).symlink_to(tmp_path / "secret")
        try:
            told = str([each.captions_fault for each in layout.read(corpus, "train")])
        except CorpusFileMissing as error:
            told = str(error)
        assert f"{corpus / layout.captions} is a link out of the corpus" in told
