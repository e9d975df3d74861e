"""SCAN's arrays with one row an image or one a caption, and CAMERA's boxes."""

from pathlib import Path

import numpy as np
import pytest

from tandem.corpus.errors import (
    CorpusFileMissing,
    CorpusMalformed,
    RegionsMissing,
    RegionsUnreadable,
)
from tandem.corpus.regions.scan_precomp import ScanPrecomp

FEATURES = np.arange(12, dtype=np.float32).reshape(2, 3, 2)


def write(folder: Path, ids: list[str], features: np.ndarray = FEATURES) -> Path:
    """Writes the test split."""
    np.save(folder / "test_ims.npy", features)
    (folder / "test_ids.txt").write_text("\n".join(ids) + "\n")
    return folder / "test_ims.npy"


@pytest.mark.parametrize(("repeated_ids", "repeated_rows"), [(1, 1), (5, 1), (1, 5)], ids=str)
def test_rows_and_ids_may_be_repeated(
    tmp_path: Path, repeated_ids: int, repeated_rows: int
) -> None:
    """Five captions an image: some releases repeat the ids, some the rows, some both."""
    ids = [each for each in ("a", "b") for _ in range(repeated_ids)]
    path = write(tmp_path, ids, FEATURES.repeat(repeated_rows, axis=0))

    reader = ScanPrecomp(path)
    reader.feature_width = 2

    assert list(reader.image_ids()) == ["a", "b"]
    assert reader.read("b").features.tolist() == [[6, 7], [8, 9], [10, 11]]
    assert reader.read("a").boxes is None


def test_boxes_come_from_side_files(tmp_path: Path) -> None:
    boxes = np.tile(np.array([0, 0, 50, 100], np.float32), (2, 3, 1))
    np.save(tmp_path / "test_boxes.npy", boxes)
    np.save(tmp_path / "test_img_sizes.npy", np.array([[200, 100], [50, 100]]))

    reader = ScanPrecomp(write(tmp_path, ["a", "b"]))
    reader.feature_width = 2

    first, second = reader.read("a"), reader.read("b")
    assert first.boxes is not None
    assert second.boxes is not None
    assert first.boxes[0].tolist() == [0, 0, 0.25, 1]
    assert second.boxes[2].tolist() == [0, 0, 1, 1]


def test_a_mismatch_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusMalformed, match="3 ids for 2 images"):
        ScanPrecomp(write(tmp_path, ["a", "b", "c"]))
    with pytest.raises(CorpusMalformed, match="image 'a' in two places"):
        ScanPrecomp(write(tmp_path, ["a", "b", "a"], FEATURES[[0, 1, 0]]))
    with pytest.raises(RegionsUnreadable, match=r"features \[3, 2\] instead of \[n, 2048\]"):
        ScanPrecomp(write(tmp_path, ["a", "b"])).read("a")
    with pytest.raises(RegionsMissing, match="'c'"):
        ScanPrecomp(write(tmp_path, ["a", "b"])).read("c")
    np.save(tmp_path / "test_img_sizes.npy", np.ones((1, 2)))
    np.save(tmp_path / "test_boxes.npy", np.ones((2, 3, 4)))
    with pytest.raises(CorpusMalformed, match=r"img_sizes.npy has 1 rows instead of 2"):
        ScanPrecomp(write(tmp_path, ["a", "b"]))


def test_damage_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, ["a", "b"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(CorpusMalformed, match=r"test_ims.npy is not a whole array"):
        ScanPrecomp(path)
    np.save(path, np.array([{"an": "object"}, None]))
    with pytest.raises(CorpusMalformed, match="not a whole array"):
        ScanPrecomp(path)
    write(tmp_path, ["a", "b"])
    (tmp_path / "test_ids.txt").unlink()
    with pytest.raises(CorpusFileMissing, match=r"test_ids.txt"):
        ScanPrecomp(path)


def test_five_that_are_not_of_one_image_are_refused(tmp_path: Path) -> None:
    """Repeated as a whole instead of one by one, images would get each other's regions."""
    images = np.arange(18, dtype=np.float32).reshape(3, 3, 2)
    with pytest.raises(CorpusMalformed, match="not five equal ones"):
        ScanPrecomp(write(tmp_path, ["a", "b", "c"] * 5, images))
    with pytest.raises(CorpusMalformed, match="first five are not of one image"):
        ScanPrecomp(write(tmp_path, ["a", "b", "c"], np.tile(images, (5, 1, 1))))
