"""Files of one kind, and which split each is of."""

from pathlib import Path

import pytest

from tandem.corpus.errors import CorpusFileMissing, CorpusMalformed
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.shards import (
    check_one_configuration,
    report_missing_parts,
    shards_by_split,
)


def names(path: Path) -> dict[str, list[str]]:
    return {
        split: [shard.name for shard in shards]
        for split, shards in shards_by_split(path, (".tar",)).items()
    }


def test_the_name_before_the_number_is_the_split(tmp_path: Path) -> None:
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
    for name in ("train/000.tar", "train/val-1.tar", "train/.000.tar", "train/sizes.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "train" / "folder.tar").mkdir()
    (tmp_path / "notes").mkdir()

    assert names(tmp_path) == {"train": ["train/000", "train/val-1"]}


def test_a_link_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    for folder in ("train", "val"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0.tar").touch()
    assert names(tmp_path) == {"train": ["train/0"], "val": ["val/0"]}

    (tmp_path / "val" / "loop.tar").symlink_to(tmp_path / "val" / "loop.tar")
    left_out = LeftOut()
    assert list(shards_by_split(tmp_path, (".tar",), left_out)) == ["train", "val"]
    assert left_out.first_files == {FileFault.UNLISTED: [f"{tmp_path}/val/loop.tar"]}


def test_nothing_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(CorpusFileMissing, match=r"no \.tar file at .*nowhere"):
        shards_by_split(tmp_path / "nowhere", (".tar",))


SPARK = "part-0000{}-a5835434-5909-4f72-a89e-2fc1d17efc62-c000.snappy"


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000-of-00002", "train"),
        ("default/train/0000", "train"),
        ("de/partial-train/0000", "train"),
        ("part-r-00000", "all"),
        (f"data/{SPARK.format(1)}", "all"),
        (f"year=2020/split=val/{SPARK.format(1)}", "val"),
        (f"year=2020/{SPARK.format(1)}", "all"),
        (f"train/year=2020/{SPARK.format(1)}", "train"),
    ],
)
def test_splits_as_hugging_face_and_spark_lay_them_out(
    tmp_path: Path, name: str, split: str
) -> None:
    path = tmp_path / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    (path.parent / "_SUCCESS").touch()
    (path.parent / f".{path.name}.crc").touch()
    left_out = LeftOut()

    found = shards_by_split(tmp_path, (".parquet",), left_out)

    assert [(each, [s.name for s in shards]) for each, shards in found.items()] == [(split, [name])]
    assert not left_out.file_counts


@pytest.mark.parametrize(
    ("names", "configurations"),
    [
        (("de/train-00000-of-00001", "fr/partial-train/0000"), "de, fr"),
        (("train-00000-of-00001", "de/train-00000-of-00001"), "., de"),
        # Parts of one split, whatever folders are around or below it, or partition it.
        (("train/a/000", "train/b/000", "train-7"), None),
        (("data/train-00000-of-00002", "default/train/0001"), None),
        (("language=de/train/0", "language=fr/train/0", "train/language=cs/0"), None),
    ],
)
def test_configurations_side_by_side_are_refused(
    tmp_path: Path, names: tuple[str, ...], configurations: str | None
) -> None:
    """Read as one corpus they would give each picture twice, and captions of two languages."""
    for name in names:
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    train = shards_by_split(tmp_path, (".parquet",))["train"]

    assert len(train) == len(names)
    if configurations is None:
        check_one_configuration(train, "train")
    else:
        with pytest.raises(CorpusMalformed, match=f"several configurations: {configurations};"):
            check_one_configuration(train, "train")


def test_folders_stand_for_columns(tmp_path: Path) -> None:
    path = tmp_path / "Language=de" / "split=val" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    path.touch()

    (shard,) = shards_by_split(tmp_path, (".parquet",))["val"]

    assert shard.partitions == {"Language": "de", "split": "val"}


def test_files_of_other_kinds_are_counted(tmp_path: Path) -> None:
    outside = tmp_path / "outside.tar"
    outside.touch()
    root = tmp_path / "root"
    root.mkdir()
    (root / "0.TAR").touch()
    (root / "1.csv").touch()
    (root / "2.tar").symlink_to(outside)
    left_out = LeftOut()

    assert [shard.name for shard in shards_by_split(root, (".tar",), left_out)["all"]] == ["0"]
    assert left_out.file_counts == {".csv": 1, FileFault.LEADS_OUT: 1}


def test_a_snapshot_in_hugging_faces_cache_is_read_through_its_links(tmp_path: Path) -> None:
    """They lead to the blobs/ next to it, and nowhere else."""
    snapshot = tmp_path / "datasets--x" / "snapshots" / "abc"
    (snapshot / "data").mkdir(parents=True)
    blobs = tmp_path / "datasets--x" / "blobs"
    blobs.mkdir()
    (blobs / "1234").touch()
    (tmp_path / "other").touch()
    (snapshot / "data" / "train-0.parquet").symlink_to("../../../blobs/1234")
    (snapshot / "data" / "train-1.parquet").symlink_to(tmp_path / "other")

    (shard,) = shards_by_split(snapshot, (".parquet",))["train"]

    assert shard.name == "data/train-0"


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (("00001-of-00002-a09b74b3ef9c3b56", "00002-of-00002-b09b74b3ef9c3b56"), None),
        (("00000-of-00004", "00002-of-00004"), "train: 2 of 4 parts are there"),
        (("000", "002"), None),
    ],
)
def test_parts_that_names_promise_are_missed(
    tmp_path: Path, there: tuple[str, ...], missing: str | None
) -> None:
    """A part of a split is never read as the whole without a word."""
    for name in there:
        (tmp_path / f"train-{name}.tar").touch()
    left_out = LeftOut()

    report_missing_parts(shards_by_split(tmp_path, (".tar",))["train"], left_out)

    expected = [] if missing is None else [f"{tmp_path}/{missing}"]
    assert left_out.first_files.get(FileFault.PARTS_MISSING, []) == expected
