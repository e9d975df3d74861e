"""M3P's HDF5 file, with sizes in either order."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tandem.corpus.errors import (
    CorpusFileMissing,
    CorpusMalformed,
    RegionsMissing,
    RegionsUnreadable,
)
from tandem.corpus.regions.m3p_h5 import M3pH5

# Two pictures of 200 x 100 and 100 x 100 pixels; of three rows each two and one count.
DATASETS: dict[str, Any] = {
    "image_id": np.array([11, 12]),
    "wh": np.array([[200, 100], [100, 100]]),
    "num_boxes": np.array([2, 1]),
    "bbox": np.array(
        [
            [[0, 0, 100, 50], [50, 25, 200, 100], [0, 0, 0, 0]],
            [[0, 0, 25, 50], [9e9, 9e9, 9e9, 9e9], [0, 0, 0, 0]],
        ],
        np.float32,
    ),
    "features": np.arange(12, dtype=np.float32).reshape(2, 3, 2),
}


def write(path: Path, **other: Any) -> Path:
    """Writes the datasets with other ones in their places; None leaves one out."""
    with h5py.File(path, "w") as file:
        for name, values in (DATASETS | other).items():
            if values is not None:
                file[name] = values
    return path


@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_boxes_say_what_wh_means(tmp_path: Path, is_reversed: bool) -> None:
    """x2 of 200 needs a width of 200, whatever stands first."""
    sizes = DATASETS["wh"][:, ::-1] if is_reversed else DATASETS["wh"]
    reader = M3pH5(write(tmp_path / "it.h5", wh=sizes))
    reader.feature_width = 2

    first, second = reader.read("11"), reader.read("12")

    assert list(reader.image_ids()) == ["11", "12"]
    assert first.features.tolist() == [[0, 1], [2, 3]]
    assert first.boxes is not None
    assert first.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.25, 0.25, 1, 1]]
    assert (first.width, first.height) == (200, 100)
    assert second.features.tolist() == [[6, 7]]


def test_ids_may_be_texts_and_features_called_feature(tmp_path: Path) -> None:
    names = {"image_id": np.array([b"a.jpg", b"b.jpg"]), "features": None}
    path = write(tmp_path / "it.h5", **names, feature=DATASETS["features"])

    reader = M3pH5(path)
    reader.feature_width = 2
    assert len(reader.read("a.jpg")) == 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"bbox": None}, "has no dataset bbox"),
        ({"image_id": np.array([11, 11])}, "has an image twice"),
        ({"wh": np.array([[50, 50], [50, 50]])}, "boxes of some images fit neither"),
        ({"wh": np.array([[500, 400], [500, 400]])}, "and boxes fit both"),
    ],
)
def test_another_layout_is_named(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusMalformed, match=f"it.h5.*{message}"):
        M3pH5(write(tmp_path / "it.h5", **other))


def test_faults_of_one_image_are_named(tmp_path: Path) -> None:
    features = DATASETS["features"].copy()
    features[1, 0, 0] = np.nan
    reader = M3pH5(write(tmp_path / "it.h5", features=features))
    reader.feature_width = 2

    with pytest.raises(RegionsUnreadable, match="'12' has features that are NaN"):
        reader.read("12")
    with pytest.raises(RegionsMissing, match="'13'"):
        reader.read("13")


def test_files_that_are_not_there_or_no_hdf5(tmp_path: Path) -> None:
    (tmp_path / "cut.h5").write_bytes(write(tmp_path / "it.h5").read_bytes()[:700])

    with pytest.raises(CorpusMalformed, match=r"cut.h5 is not a whole HDF5"):
        M3pH5(tmp_path / "cut.h5")
    with pytest.raises(CorpusFileMissing, match=r"no file .*gone.h5"):
        M3pH5(tmp_path / "gone.h5")
