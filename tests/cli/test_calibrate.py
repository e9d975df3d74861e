"""`tandem models calibrate`: from a checkpoint to the file that its export takes along."""

import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.model_description import ProbabilityCalibration
from tandem.model_io.calibration import (
    CALIBRATION_NAME,
    Calibration,
    read_calibrations,
    write_calibrations,
)
from tandem.model_io.precision import Precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export_manifest import export_manifest

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


def test_what_is_measured_is_written_for_its_precision(checkpoint: Path, tmp_path: Path) -> None:
    """Another precision's stays as it is, and the page says on what and how well."""
    other = Calibration("of another precision", ProbabilityCalibration(scale=0.5), None)
    write_calibrations(checkpoint / CALIBRATION_NAME, [other])
    few = ("--gallery-count", "24", "--k", "8", "--first-count", "2", "--further-count", "2")
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
    assert (found.adaptive_depth.first_count, found.adaptive_depth.further_count) == (2, 2)
    text = page.read_text(encoding="utf-8")
    assert "scenes test, gallery of 24, seed 1" in text
    assert "| both | the rule |" in text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--first-count", "20"], "leaves nothing to stop; ask for 19 or fewer"),
        (["--gallery-count", "16"], "has 16 records for pools of 20"),
        (["--dev-split", "none"], "no split 'none' of scenes"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    checkpoint: Path, arguments: list[str], why: str
) -> None:
    """By name, and nothing is written."""
    status, _, error = run(str(checkpoint), *arguments)

    assert status != 0
    assert why in error
    assert not (checkpoint / CALIBRATION_NAME).exists()
