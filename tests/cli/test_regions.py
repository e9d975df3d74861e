"""`tandem regions`: a detector's files as one file, which evaluation reads."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.modeling.image_sources.region_tokens import RegionFile


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["regions", *map(str, arguments)])


@pytest.fixture(name="detected")
def _detected(tmp_path: Path) -> Path:
    """Archives of two images with three regions each, of which b has one that is NaN."""
    folder = tmp_path / "detected"
    folder.mkdir()
    for number, name in enumerate("ab"):
        features = np.full((3, 2048), 1 + number, np.float32)
        features[2] = np.nan if name == "b" else 7
        boxes = np.array([[0, 0, 50, 100], [0, 0, 200, 50], [0, 0, 200, 100]], np.float32)
        width, height = np.array(200), np.array(100)
        np.savez(folder / f"{name}.npz", x=features, bbox=boxes, image_w=width, image_h=height)
    return folder


def test_a_detectors_files_are_merged_into_one(detected: Path, tmp_path: Path) -> None:
    """What cannot be read is counted, and the first regions are kept."""
    result = run(detected, tmp_path / "it.safetensors", "--region-count", "2", "--on-error", "skip")

    assert result.exit_code == 0, result.output
    assert "1 images, 2 regions each at most" in " ".join(result.output.split())
    assert "skipped records: 1 (regions unreadable 1)" in " ".join(result.output.split())
    file = RegionFile(tmp_path / "it.safetensors")
    assert list(file.record_ids()) == ["a"]
    vectors = file.vectors("a")
    assert vectors[:, 2048:].tolist() == [[0, 0, 0.25, 1, 0.25, 1], [0, 0, 1, 0.5, 1, 0.5]]
    assert vectors[:, :2048].unique().tolist() == [1]
