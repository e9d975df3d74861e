"""A start exports when it must and only then."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.contract.model_description import ProbabilityCalibration
from tandem.model_io.repository.calibration import (
    CALIBRATION_NAME,
    Calibration,
    read_calibration,
    write_calibrations,
)
from tandem.model_io.repository.manifest import read_manifest
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.modeling.export.version_export import export_version
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("export")


def test_a_fresh_export_is_kept(checkpoint: Path, repository: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    manifest = read_manifest(repository)

    assert export_if_stale(checkpoint, repository) == manifest

    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before


@pytest.mark.parametrize("name", ["image_backbone/1/model.pt", "tokenizer.json", "manifest.json"])
def test_a_damaged_file_is_repaired(checkpoint: Path, repository: Path, name: str) -> None:
    path = repository / name
    fingerprint = read_manifest(repository).fingerprint
    path.write_bytes(path.read_bytes()[:100])

    manifest = export_if_stale(checkpoint, repository, Precision.FP32)

    assert manifest.fingerprint == fingerprint
    manifest.verify(repository)


def test_another_checkpoint_replaces_the_export(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("other")
    save_tiny_checkpoint(folder, seed=1)
    old = read_manifest(repository)

    new = export_if_stale(folder, repository)

    assert new.fingerprint != old.fingerprint
    assert read_manifest(repository) == new
    new.verify(repository)


def test_a_requested_precision_replaces_another(checkpoint: Path, repository: Path) -> None:
    manifest = export_if_stale(checkpoint, repository, Precision.BF16)

    assert manifest.precision == Precision.BF16
    assert export_if_stale(checkpoint, repository) == manifest


def test_a_repair_keeps_the_precision_that_is_there(checkpoint: Path, repository: Path) -> None:
    """Or what is stored would answer to another fingerprint, on a machine whose best is another."""
    other = Precision.FP32 if native_precision() is Precision.BF16 else Precision.BF16
    before = export_if_stale(checkpoint, repository, other)
    for name in ("image_backbone/1/model.pt", "tokenizer.json"):
        (repository / name).write_bytes(b"damaged")

        repaired = export_if_stale(checkpoint, repository)

        assert (repaired.precision, repaired.fingerprint) == (other, before.fingerprint), name
        repaired.verify(repository)


def test_a_configuration_is_written_again_alone(checkpoint: Path, repository: Path) -> None:
    export_version(checkpoint, repository)
    path = repository / "joint_encoder" / "config.pbtxt"
    whole = path.read_bytes()
    before = {each: each.read_bytes() for each in repository.rglob("*") if each.is_file()}
    path.write_bytes(whole + b"# mine\n")

    assert export_if_stale(checkpoint, repository) == read_manifest(repository)

    after = {each: each.read_bytes() for each in repository.rglob("*") if each.is_file()}
    assert after == before


def test_a_newer_calibration_is_carried_over_without_an_export(
    checkpoint: Path, exported: Path, repository: Path, tmp_path: Path
) -> None:
    calibrated = shutil.copytree(checkpoint, tmp_path / "calibrated")
    fingerprint = read_manifest(exported).fingerprint
    calibration = Calibration(fingerprint, ProbabilityCalibration(scale=0.5), None)
    write_calibrations(calibrated / CALIBRATION_NAME, [calibration])
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*.pt")}

    export_if_stale(calibrated, repository)

    assert read_calibration(repository, fingerprint) == calibration
    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*.pt")} == before

    export_if_stale(checkpoint, repository)

    assert read_calibration(repository, fingerprint) is None


def test_a_start_with_a_fresh_export_waits_for_no_torch(checkpoint: Path, repository: Path) -> None:
    """Seconds of every start but the first; the control: a stale one does import it."""
    program = (
        "import sys; from pathlib import Path; sys.modules['torch'] = None;"  # is not imported
        "from tandem.modeling.export.fresh_export import export_if_stale;"
        "export_if_stale(Path(sys.argv[1]), Path(sys.argv[2]))"
    )

    def said() -> str:
        command = [sys.executable, "-c", program, str(checkpoint), str(repository)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    assert said() == ""
    (repository / "manifest.json").unlink()
    assert "ModuleNotFoundError: import of torch halted" in said()
