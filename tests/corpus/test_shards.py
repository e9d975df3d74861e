"""Files of one kind, and which split each is of."""

from pathlib import Path

import pytest

from tandem.corpus.errors import CorpusFileMissing
from tandem.corpus.shards import shards_by_split


def names(path: Path) -> dict[str, list[str]]:
    return {
        split: [shard.name for shard in shards]
        for split, shards in shards_by_split(path, ".tar").items()
    }


def test_a_split_is_what_comes_before_the_number(tmp_path: Path) -> None:
    """Whichever way writers number; a number alone is of the whole, and a year is no number."""
    hashed = "test-00000-of-00001-a09b74b3ef9c3b56"
    trains = ("train-00000-of-00002", "train-00001-of-00002")
    for name in ("001", "000", *trains, "val_0", "coco2014", hashed):
        (tmp_path / f"{name}.tar").touch()

    assert names(tmp_path) == {
        "all": ["000", "001"],
        "train": list(trains),
        "val": ["val_0"],
        "test": [hashed],
        "coco2014": ["coco2014"],
    }


def test_a_folder_is_a_split(tmp_path: Path) -> None:
    """Whatever its files are called; other kinds, hidden files and folders called so are none."""
    for name in ("train/000.tar", "train/val-1.tar", "train/.000.tar", "train/sizes.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "train" / "folder.tar").mkdir()
    (tmp_path / "notes").mkdir()

    assert names(tmp_path) == {"train": ["train/000", "train/val-1"]}


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    """But for the one in a disk's root. A link to itself cannot be followed even by root."""
    for folder in ("train", "val", "lost+found"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0.tar").touch()
    assert names(tmp_path) == {"train": ["train/0"], "val": ["val/0"]}

    (tmp_path / "val" / "loop.tar").symlink_to(tmp_path / "val" / "loop.tar")
    with pytest.raises(CorpusFileMissing, match=r"val/loop\.tar cannot be listed: Too many levels"):
        shards_by_split(tmp_path, ".tar")


def test_one_file_is_given_by_its_own_path(tmp_path: Path) -> None:
    """Its name says the split."""
    (tmp_path / "test-7.tar").touch()

    assert names(tmp_path / "test-7.tar") == {"test": ["test-7"]}


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_nothing_is_refused_by_its_path(tmp_path: Path, name: str) -> None:
    """Whether the path or its content is not there."""
    (tmp_path / "empty").mkdir()

    with pytest.raises(CorpusFileMissing, match=rf"no \.tar file at .*{name}"):
        shards_by_split(tmp_path / name, ".tar")
