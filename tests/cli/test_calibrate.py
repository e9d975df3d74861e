"""`tandem models calibrate`: from a checkpoint to the file that its export takes along."""

import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.contract.model_description import ProbabilityCalibration
from tandem.model_io.repository.calibration import (
    CALIBRATION_NAME,
    Calibration,
    read_calibrations,
    write_calibrations,
)
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export_manifest import export_manifest

# Test runs share cores, and torch's threads wait for one another.
torch.set_num_threads(1)


def run(*arguments: str) -> tuple[int, str, str]:
    """Returns the exit status, what was printed, and the error."""
    result = CliRunner().invoke(app, ["models", "calibrate", *arguments])
    return result.exit_code, result.output, str(result.exception or "")


@pytest.fixture(name="checkpoint")
def _checkpoint(tmp_path: Path) -> Path:
    """A copy of the shipped checkpoint, of which nothing was measured."""
    folder = shutil.copytree(default_checkpoint(), tmp_path / "copy")
    (folder / CALIBRATION_NAME).unlink(missing_ok=True)
    return folder


def test_a_measurement_is_written_for_its_precision(checkpoint: Path, tmp_path: Path) -> None:
    other = Calibration("of another precision", ProbabilityCalibration(scale=0.5), None)
    write_calibrations(checkpoint / CALIBRATION_NAME, [other])
    few = ("--count", "24", "--rerank-k", "8", "--first-count", "2", "--further-count", "2")
    page = tmp_path / "page.md"

    status, printed, error = run(
        str(checkpoint), *few, "--precision", "fp32", "--report", str(page)
    )

    assert (status, error) == (0, ""), printed
    manifest = export_manifest(CheckpointFiles.read(checkpoint), Precision.FP32, {})
    kept, found = read_calibrations(checkpoint / CALIBRATION_NAME)
    assert kept == other
    assert found.fingerprint == manifest.fingerprint
    assert found.probability is not None
    assert found.probability.scale > 0
    assert found.adaptive_depth is not None
    assert found.text_similarity is not None
    assert found.text_similarity.probability(1.0) > 0.5 > found.text_similarity.probability(0.5)
    assert (found.adaptive_depth.first_count, found.adaptive_depth.further_count) == (2, 2)
    text = page.read_text(encoding="utf-8")
    assert "scenes test, gallery of 24, seed 1" in text
    assert "| both | the rule |" in text
    assert "two texts: probability = sigmoid(" in text


@pytest.mark.parametrize(
    ("options", "is_written"),
    # The last is what the first does.
    [
        ([], False),
        (["--write"], True),
        pytest.param(["--no-write"], False, marks=pytest.mark.slow),
    ],
)
def test_the_shipped_calibration_is_written_on_request(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], is_written: bool
) -> None:
    """It is a file of the sources, and a small gallery would spoil it; the page is printed."""
    monkeypatch.setattr("tandem.cli.models.calibrate.default_checkpoint", lambda: checkpoint)
    few = ("--count", "24", "--rerank-k", "8", "--query-count", "12", "--precision", "fp32")
    few += ("--first-count", "2", "--further-count", "2")  # type: ignore[assignment]

    status, printed, error = run(*few, *options)

    assert (status, error) == (0, ""), printed
    assert "## Match probability" in printed
    assert "gallery of 24, 12 queries each way" in printed
    assert (checkpoint / CALIBRATION_NAME).exists() == is_written
    assert ("--write adds this calibration" in printed) != is_written
