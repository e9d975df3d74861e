"""Corpora by name: each layout is found; a wrong name's error lists what there is."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.cli.corpora.corpora import TRAIN_WITHOUT_RESTVAL, open_corpus, open_divided
from tandem.corpus.left_out import LeftOut
from tandem.corpus.scenes.records import scene_records

NAMES = (
    "scenes",
    "emoji",
    "FILE.json",
    "folder:PATH",
    "list:PATH",
    "multi30k:PATH",
    "webdataset:PATH",
    "parquet:PATH",
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_unknown_split_lists_those_of_the_corpus(tmp_path: Path, layout: object) -> None:
    assert callable(layout)
    name = layout(tmp_path)

    with pytest.raises(ValueError, match=r"no picture of split 'extra'; its splits are: .*train"):
        open_corpus(name, "extra", seed=1, count=None)


def test_the_requested_number_of_scenes_is_made() -> None:
    """The seed decides them, and there are 2,000 by default."""
    opened = open_corpus("scenes", "test", seed=3, count=8)
    ids = [each.record_id for each in opened]

    assert opened.total == 8
    assert ids == [each.record_id for each in scene_records("test", 3, 8)]
    assert sum(1 for _ in open_corpus("scenes", "test", seed=3, count=None)) == 2_000


@pytest.mark.parametrize("name", ["scenes", "emoji"])
def test_an_unknown_split_of_a_generated_corpus_lists_its_splits(name: str) -> None:
    with pytest.raises(ValueError, match=rf"no split 'dev' of {name}; there are train, val"):
        open_corpus(name, "dev", seed=1, count=None)


def test_restval_can_be_left_out_of_train_and_read_alone(tmp_path: Path) -> None:
    """COCO's file, by its splits' names."""
    name = karpathy(tmp_path)

    def ids(split: str) -> list[str]:
        return [each.record_id for each in open_corpus(name, split, seed=1, count=None)]

    assert ids("train") == ["train", "restval"]
    assert ids(TRAIN_WITHOUT_RESTVAL) == ["train"]
    assert ids("restval") == ["restval"]


@pytest.mark.parametrize("name", ["scene", "folders:/tmp", "dataset.csv", "", "/nowhere", ":x"])
def test_an_unknown_corpus_lists_those_that_there_are(name: str) -> None:
    """A path alone is none, unless it is of a folder or a .json file."""
    with pytest.raises(ValueError, match="no corpus") as caught:
        open_corpus(name, "train", seed=1, count=None)

    assert all(each in str(caught.value) for each in NAMES)


@pytest.mark.parametrize("kind", ["folder", "list", "multi30k", "webdataset", "parquet"])
def test_a_path_that_is_not_there_is_named(tmp_path: Path, kind: str) -> None:
    """The error of a name without a path says what is missing."""
    with pytest.raises(ValueError, match=r"no .*nowhere"):
        open_corpus(f"{kind}:{tmp_path}/nowhere", "train", seed=1, count=None)
    with pytest.raises(ValueError, match=rf"says no path; write {kind}:PATH"):
        open_corpus(f"{kind}:", "train", seed=1, count=None)


def test_a_missing_json_file_is_named(tmp_path: Path) -> None:
    """It is a Karpathy corpus by its name."""
    with pytest.raises(ValueError, match=r"no file .*nowhere\.json"):
        open_corpus(f"{tmp_path}/nowhere.json", "train", seed=1, count=None)


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell expands a tilde behind a colon."""
    caption_list(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert len(list(open_corpus("list:~/train.tsv", "train", seed=1, count=None))) == 1


def test_the_names_are_known_without_pyarrow(tmp_path: Path) -> None:
    """Only parquet needs it, and says so."""
    name = parquet(tmp_path)
    program = f"""
import sys
sys.modules["pyarrow"] = None
from tandem.cli.corpora.corpora import open_corpus
next(open_corpus("emoji", "test", 1, 1))
try:
    open_corpus({name!r}, "train", 1, None)
except ValueError as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )

    assert ran.returncode == 0, ran.stderr
    assert 'pip install "tandem-search[parquet]"' in ran.stdout


def test_a_folder_without_pictures_names_the_picture_formats(tmp_path: Path) -> None:
    """Rather than its splits alone, of which it has none."""
    (tmp_path / "notes.txt").touch()

    with pytest.raises(ValueError, match=r"no picture of split 'test' \(pictures are \.jpg, "):
        open_corpus(str(tmp_path), "test", seed=1, count=None)


def test_a_folder_of_pictures_is_a_corpus_by_its_path(tmp_path: Path) -> None:
    """Whatever the split, colons in its name, and captions it has or has not."""
    folder = tmp_path / "12:30 photos"
    (folder / "more").mkdir(parents=True)
    for name in ("a.jpg", "more/b.JPG"):
        (folder / name).write_bytes(b"pixels")

    for split in ("test", "validation"):
        records = open_corpus(str(folder), split, seed=1, count=None)
        assert records.total == 2
        assert [each.record_id for each in records] == ["a", "more/b"]
        assert records.left_out.uncaptioned_count == 2
    assert [r.record_id for r in open_corpus(f"folder:{folder}", "test", 1, 1)] == ["a"]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["a.jpg", "train.tsv"], "write list:PATH where"),
        (["train-0.tar"], "write webdataset:PATH"),
        (["data/train-0.parquet"], "write parquet:PATH"),
        (["images/a.jpg", "dataset.json"], "write PATH/dataset.json for"),
        (["a.bmp"], r"passed over: 1 \(\.bmp 1\)"),
        ([], "has no picture of split 'test'"),
    ],
)
def test_a_folder_that_is_another_corpus_says_what_to_write(
    tmp_path: Path, files: list[str], says: str
) -> None:
    """Its pictures alone would be a corpus without captions."""
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    with pytest.raises(ValueError, match=says.replace("PATH", str(tmp_path))):
        open_corpus(str(tmp_path), "test", seed=1, count=None)


@pytest.mark.parametrize(
    ("name", "says"),
    [("a.jpg", "give the folder"), ("a.tar", "write webdataset:"), ("a.tsv", "write list:")],
)
def test_a_file_alone_says_what_to_write(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / name).touch()

    with pytest.raises(ValueError, match=rf"no corpus .*{says}"):
        open_corpus(str(tmp_path / name), "test", seed=1, count=None)


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_corpus_gives_its_number_of_records_if_that_is_cheap(
    tmp_path: Path, layout: object
) -> None:
    """And never more than was requested."""
    assert callable(layout)
    name = layout(tmp_path)

    total = open_corpus(name, "train", seed=1, count=None).total

    if layout in (caption_list, webdataset):
        assert total is None
    else:
        assert total == len(list(open_corpus(name, "train", seed=1, count=None)))
        assert open_corpus(name, "train", seed=1, count=1).total == 1
