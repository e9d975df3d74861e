"""OSCAR's later rows, with and without the files that say where each begins."""

import json
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

from tandem.corpus.errors import CorpusMalformed, RegionsMissing, RegionsUnreadable
from tandem.corpus.regions.vinvl_tsv import VinvlTsv

# Three features and x1, y1, x2, y2, width, height.
VECTORS = np.array(
    [[1, 2, 3, 0, 0, 0.5, 0.25, 0.5, 0.25], [4, 5, 6, 0.25, 0.5, 1, 1, 0.75, 0.5]], "<f4"
)


def row(image_id: str, vectors: np.ndarray = VECTORS) -> bytes:
    """Returns one row."""
    return f"{image_id}\t{len(vectors)}\t{b64encode(vectors.tobytes()).decode()}\n".encode()


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """Of image 42 with two regions and image 7 with one, and their index."""
    rows = [row("42"), row("7", VECTORS[1:])]
    (tmp_path / "features.tsv").write_bytes(b"".join(rows))
    (tmp_path / "features.lineidx").write_text(f"0\n{len(rows[0])}\n")
    (tmp_path / "imageid2idx.json").write_text(json.dumps({"7": 1, "42": 0}))
    return tmp_path


@pytest.mark.parametrize("has_index", [True, False])
def test_rows_are_found_by_id(folder: Path, has_index: bool) -> None:
    if not has_index:
        (folder / "features.lineidx").unlink()
    reader = VinvlTsv(folder / "features.tsv")
    reader.feature_width = 3

    both, one = reader.read("42"), reader.read("7")

    assert list(reader.image_ids()) == (["7", "42"] if has_index else ["42", "7"])
    assert both.features.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert one.boxes is not None
    assert one.boxes.tolist() == [[0.25, 0.5, 1, 1]]
    assert (one.width, one.height) == (1, 1)


def test_another_index_is_noticed(folder: Path) -> None:
    (folder / "imageid2idx.json").write_text(json.dumps({"7": 0, "42": 1}))

    with pytest.raises(RegionsUnreadable, match="'7' is not the row that the index gives"):
        VinvlTsv(folder / "features.tsv").read("7")


def test_a_damaged_index_is_named(folder: Path) -> None:
    for name, text, message in [
        ("features.lineidx", "0\n99999\n", "places outside their file"),
        ("imageid2idx.json", '{"7', "is not JSON"),
    ]:
        (folder / name).write_text(text)
        with pytest.raises(CorpusMalformed, match=message):
            VinvlTsv(folder / "features.tsv")


def test_sides_that_are_not_differences_are_refused(folder: Path) -> None:
    """Then the six numbers stand in another order, and the model would read others."""
    other = VECTORS[:, [0, 1, 2, 3, 4, 5, 6, 8, 7]]
    (folder / "imageid2idx.json").unlink()
    (folder / "features.tsv").write_bytes(row("1", other) + row("2", VECTORS[:, :8]) + row("3"))
    reader = VinvlTsv(folder / "features.tsv")
    reader.feature_width = 3

    with pytest.raises(RegionsUnreadable, match="'1' has widths and heights other than"):
        reader.read("1")
    with pytest.raises(RegionsUnreadable, match=r"'2' has vectors \[2, 8\] instead of \[n, 9\]"):
        reader.read("2")
    assert len(reader.read("3")) == 2
    with pytest.raises(RegionsMissing, match="'4'"):
        reader.read("4")


def test_blank_lines_at_the_end_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "features.tsv").write_bytes(row("42") + b"\n\n")
    assert list(VinvlTsv(tmp_path / "features.tsv").image_ids()) == ["42"]
