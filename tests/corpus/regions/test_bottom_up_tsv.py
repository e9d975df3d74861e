"""Rows of the bottom-up-attention detector, written as its authors' csv writer does."""

from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

from tandem.corpus.errors import CorpusMalformed, RegionsMissing, RegionsUnreadable
from tandem.corpus.regions.bottom_up_tsv import BottomUpTsv

FEATURES = np.arange(8, dtype="<f4").reshape(2, 4)
BOXES = np.array([[0, 0, 320, 240], [160, 120, 640, 480]], "<f4")


def row(image_id: str, features: np.ndarray = FEATURES, count: int = 2) -> str:
    """Returns one row; the picture has 640 x 480 pixels."""
    texts = [b64encode(each.tobytes()).decode() for each in (BOXES, features)]
    return "\t".join([image_id, "640", "480", str(count), *texts])


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """Of two images: 36979 with two regions, and 1000092795 with twice its features."""
    path = tmp_path / "flickr30k_genome.tsv.1"
    path.write_text(f"{row('36979')}\n{row('1000092795', 2 * FEATURES)}\n")
    return path


def test_rows_are_found_by_id(path: Path) -> None:
    reader = BottomUpTsv(path)
    reader.feature_width = 4

    second, first = reader.read("1000092795"), reader.read("36979")

    assert list(reader.image_ids()) == ["36979", "1000092795"]
    assert first.features.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert second.features.tolist() == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert first.boxes is not None
    assert first.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.25, 0.25, 1, 1]]
    assert (first.width, first.height) == (640, 480)


def test_another_detector_and_a_missing_image_are_named(path: Path) -> None:
    with pytest.raises(RegionsUnreadable, match=r"36979' has features \[2, 4\] .*\[n, 2048\]"):
        BottomUpTsv(path).read("36979")
    with pytest.raises(RegionsMissing, match="no regions of image '7'"):
        BottomUpTsv(path).read("7")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (row("a")[:-3], "features is not whole base64"),
        (row("a")[:-4], "features has 30 bytes, which are not a float32 matrix of 2 rows"),
        (row("a").replace("640", "wide"), "image_w is b'wide', not a number"),
        (row("a").rpartition("\t")[0], "has 5 columns instead of 6"),
    ],
)
def test_a_damaged_row_is_named_and_the_next_is_read(
    tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "it.tsv"
    path.write_text(f"{line}\n{row('b')}\n")
    reader = BottomUpTsv(path)
    reader.feature_width = 4

    with pytest.raises(RegionsUnreadable, match=f"image 'a'.*{message}"):
        reader.read("a")
    assert len(reader.read("b")) == 2


def test_an_image_in_two_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "it.tsv").write_text(f"{row('a')}\n{row('a')}\n")

    with pytest.raises(CorpusMalformed, match="line 2 is image 'a' again"):
        BottomUpTsv(tmp_path / "it.tsv")
