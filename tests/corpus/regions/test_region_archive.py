"""One image's arrays in both layouts, a folder of them, and archives that are damaged."""

import io
from pathlib import Path

import numpy as np
import pytest

from tandem.corpus.errors import CorpusFileMissing, RegionsMissing, RegionsUnreadable
from tandem.corpus.left_out import LeftOut
from tandem.corpus.regions import region_archive
from tandem.corpus.regions.region_archive import (
    NpzFolder,
    RegionChoice,
    archived_arrays,
    archived_regions,
)

BOXES = np.array(
    [[0, 0, 0.5, 0.5, 0.5, 0.5], [0.25, 0, 1, 1, 0.75, 1], [0, 0.5, 0.5, 1, 0.5, 0.5]], np.float16
)
UNITER = {
    "norm_bb": BOXES,
    "features": np.arange(6, dtype=np.float16).reshape(3, 2),
    "conf": np.array([[0.9], [0.5], [0.1]], np.float16),
    "soft_labels": np.zeros((3, 5), np.float16),
}

DETECTED = {
    "x": np.ones((3, 2), np.float32),
    "bbox": np.tile(np.array([0, 0, 5, 5], np.float32), (3, 1)),
    "image_w": np.array([10]),
    "image_h": np.array(10.0),
}


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """Of an archive of UNITER's, one of bottom-up-attention's, and a file of neither."""
    np.savez_compressed(tmp_path / "flickr30k_000000036979.npz", **UNITER)  # type: ignore[arg-type]
    np.savez(
        tmp_path / "7.npz",
        x=np.ones((1, 2), np.float32),
        bbox=np.array([[0, 0, 50, 100]], np.float32),
        num_bbox=np.array(1),
        image_w=np.array(200),
        image_h=np.array(100),
    )
    (tmp_path / "readme.txt").write_text("of the detector")
    return tmp_path


def test_both_layouts_are_read(folder: Path) -> None:
    """UNITER's boxes are normalised; with at least ten regions wanted, all three count."""
    left_out = LeftOut()
    reader = NpzFolder(folder, left_out)
    reader.feature_width = 2

    of_uniter, other = reader.read("flickr30k_000000036979"), reader.read("7")

    assert list(reader.image_ids()) == ["7", "flickr30k_000000036979"]
    assert of_uniter.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert of_uniter.boxes is not None
    assert of_uniter.boxes[1].tolist() == [0.25, 0, 1, 1]
    assert other.boxes is not None
    assert other.boxes.tolist() == [[0, 0, 0.25, 1]]
    assert (other.width, other.height) == (200, 100)
    assert left_out.all_counts == {"passed over: .txt": 1}


@pytest.mark.parametrize(
    ("choice", "count"),
    [
        (RegionChoice(), 3),
        (RegionChoice(least_count=1), 2),
        (RegionChoice(least_count=1, most_count=1), 1),
    ],
)
def test_confidence_says_how_many_count(choice: RegionChoice, count: int) -> None:
    regions = archived_regions("it", UNITER, choice, feature_width=2)

    assert len(regions) == count
    assert regions.features.tolist() == UNITER["features"][:count].tolist()


def test_a_count_of_the_side_file_decides() -> None:
    assert len(archived_regions("it", UNITER, RegionChoice(), 1, feature_width=2)) == 1
    assert len(archived_regions("it", UNITER, RegionChoice(), 4, feature_width=2)) == 3


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": UNITER["features"]}, "has features; norm_bb and features are wanted"),
        (UNITER | {"norm_bb": BOXES[:2]}, r"boxes \[2, 4\] instead of \[3, 4\]"),
        ({**DETECTED, "x": np.full((3, 2), "1")}, "features of type <U1"),
    ],
)
def test_other_arrays_are_refused(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(RegionsUnreadable, match=f"^it .*{message}"):
        archived_regions("it", arrays, feature_width=2)


def test_damage_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (folder / "7.npz").read_bytes()
    pickled = io.BytesIO()
    np.savez(pickled, x=np.array([{"an": "object"}]))

    for damaged in (whole[:-30], b"PK", b"", pickled.getvalue()):
        with pytest.raises(RegionsUnreadable, match=r"^it is not a whole archive of arrays"):
            archived_arrays("it", damaged)
    assert archived_arrays("it", whole).keys() >= {"x", "bbox"}
    monkeypatch.setattr(region_archive, "MAX_ARCHIVE_BYTES", 100)
    with pytest.raises(RegionsUnreadable, match=r"would fill \d+ bytes, the limit is 100"):
        archived_arrays("it", whole)


def test_missing_files_are_named(tmp_path: Path, folder: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    with pytest.raises(CorpusFileMissing, match=r"no .npz file in .*empty"):
        NpzFolder(empty)
    with pytest.raises(RegionsMissing, match="'8'"):
        NpzFolder(folder).read("8")


def test_rows_that_fill_an_array_up_are_no_regions() -> None:
    assert len(archived_regions("a", {**DETECTED, "num_bbox": np.array([2])}, feature_width=2)) == 2
    assert len(archived_regions("a", DETECTED, feature_width=2)) == 3


def test_the_pickled_info_of_bottom_up_attention_is_not_opened() -> None:
    """Its program writes a dict next to the arrays into every archive."""
    info = np.array({"image_id": "7", "objects_id": [3]}, dtype=object)
    file = io.BytesIO()
    np.savez_compressed(file, **DETECTED, num_bbox=3, info=info)  # type: ignore[arg-type]
    arrays = archived_arrays("a", file.getvalue())
    assert "info" not in arrays
    assert len(archived_regions("a", arrays, feature_width=2)) == 3
