"""Corpora by name: each layout is found; a wrong name's error lists what there is."""

import io
import json
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.cli.corpora.corpora import (
    TRAIN_WITHOUT_RESTVAL,
    index_of,
    open_corpus,
    open_divided,
)
from tandem.corpus.left_out import LeftOut

NAMES = (
    "scenes",
    "emoji",
    "FILE.json",
    "folder:PATH",
    "list:PATH",
    "multi30k:PATH",
    "webdataset:PATH",
    "table:PATH",
    "parquet:PATH",
    "datasets:NAME",
)


def karpathy(folder: Path) -> str:
    (folder / "images").mkdir()
    images = []
    for number, split in enumerate(("train", "restval", "val")):
        (folder / "images" / f"{split}.jpg").write_bytes(b"pixels of " + split.encode())
        sentence = {"raw": "a", "tokens": [], "imgid": number, "sentid": number}
        images.append(
            {
                "filename": f"{split}.jpg",
                "imgid": number,
                "split": split,
                "sentids": [number],
                "sentences": [sentence],
            }
        )
    (folder / "dataset_coco.json").write_text(json.dumps({"images": images}))
    return f"{folder}/dataset_coco.json"


def picture_folder(folder: Path) -> str:
    (folder / "train").mkdir()
    (folder / "train" / "a.jpg").write_bytes(b"pixels of train")
    (folder / "train" / "a.txt").write_text("a")
    return f"folder:{folder}"


def caption_list(folder: Path) -> str:
    (folder / "a.jpg").write_bytes(b"pixels of train")
    (folder / "train.tsv").write_text("a\ta.jpg\n")
    return f"list:{folder}"


def multi30k(folder: Path) -> str:
    (folder / "images").mkdir()
    (folder / "images" / "a.jpg").write_bytes(b"pixels of train")
    (folder / "train_images.txt").write_text("a.jpg\n")
    (folder / "train.de").write_text("a\n")
    return f"multi30k:{folder}"


def webdataset(folder: Path) -> str:
    with tarfile.open(folder / "train-0.tar", "w") as archive:
        for name, data in (("a.jpg", b"pixels of train"), ("a.txt", b"a")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return f"webdataset:{folder}"


def parquet(folder: Path) -> str:
    table = pa.table({"image": [b"pixels of train"], "caption": ["a"]})
    pq.write_table(table, folder / "train-0.parquet")
    return f"parquet:{folder}"


LAYOUTS = [karpathy, picture_folder, caption_list, multi30k, webdataset, parquet]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_is_read_by_its_name(tmp_path: Path, layout: object) -> None:
    """Its first picture is read, and no more than the test requests."""
    assert callable(layout)
    name = layout(tmp_path)

    (record,) = open_corpus(name, "train", seed=1, count=1)

    assert (record.split, record.captions[0].text) == ("train", "a")
    assert record.image.read() == b"pixels of train"
    assert list(open_corpus(name, "train", seed=1, count=0)) == []


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_an_unknown_split_lists_those_of_the_corpus(tmp_path: Path, layout: object) -> None:
    assert callable(layout)
    name = layout(tmp_path)

    with pytest.raises(ValueError, match=r"no picture of split 'extra'; its splits are: .*train"):
        open_corpus(name, "extra", seed=1, count=None)


def test_restval_can_be_left_out_of_train_and_read_alone(tmp_path: Path) -> None:
    name = karpathy(tmp_path)

    def ids(split: str) -> list[str]:
        return [each.record_id for each in open_corpus(name, split, seed=1, count=None)]

    assert ids("train") == ["train", "restval"]
    assert ids(TRAIN_WITHOUT_RESTVAL) == ["train"]
    assert ids("restval") == ["restval"]


@pytest.mark.parametrize("name", ["scene", "", "/nowhere"])
def test_an_unknown_corpus_lists_those_that_there_are(name: str) -> None:
    """A path alone is none, unless it is of a folder or a .json file."""
    with pytest.raises(ValueError, match="no corpus") as caught:
        open_corpus(name, "train", seed=1, count=None)

    assert all(each in str(caught.value) for each in NAMES)


def test_a_dataset_needs_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)

    with pytest.raises(ValueError, match=r"user/pets is loaded with: pip install datasets"):
        open_corpus("datasets:user/pets", "train", seed=1, count=None)
    assert index_of("datasets:user/pets") == "pets"


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell expands a tilde behind a colon."""
    caption_list(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert len(list(open_corpus("list:~/train.tsv", "train", seed=1, count=None))) == 1


def test_training_needs_two_splits(tmp_path: Path) -> None:
    """What is not divided would be measured on what was learnt; the message says how to."""

    def opened() -> object:
        return open_divided(str(tmp_path), ("train", "val"), 1, (None, None), LeftOut())

    (tmp_path / "a.jpg").touch()
    with pytest.raises(ValueError, match=r"is not divided, .* into its subfolder train"):
        opened()

    (tmp_path / "train").mkdir()
    (tmp_path / "a.jpg").rename(tmp_path / "train" / "a.jpg")
    with pytest.raises(ValueError, match="no split 'val', and train and val are read; its"):
        opened()
