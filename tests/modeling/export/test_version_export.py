"""A checkpoint as another version of a repository's model: written whole, or refused by name."""

from pathlib import Path

import pytest
import torch

from tandem.contract.model_description import ProbabilityCalibration
from tandem.model_io.repository.calibration import CALIBRATION_NAME, Calibration, write_calibrations
from tandem.model_io.repository.followed_version import describe_model
from tandem.model_io.repository.manifest import Manifest, read_manifest
from tandem.model_io.repository.model_version import ModelVersion, version_folder, version_numbers
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig
from tandem.modeling.export.export import export_model
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.exported import ExportMismatch
from tandem.modeling.export.version_export import export_version
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer

pytestmark = pytest.mark.xdist_group("export")


def with_another_head(checkpoint_folder: Path, folder: Path) -> Path:
    """Writes the checkpoint with another cross-encoder over the same bi-encoder."""
    checkpoint = load_checkpoint(checkpoint_folder)
    with torch.no_grad():
        checkpoint.model.joint_encoder.classifier.bias += torch.tensor([0.0, 3.0])
    save_checkpoint(folder, checkpoint.model, checkpoint.tokenizer, {})
    return folder


def test_another_cross_encoder_is_a_version(
    checkpoint: Path, repository: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    other = with_another_head(checkpoint, tmp_path / "checkpoint")
    own = export_manifest(CheckpointFiles.read(other), Precision.FP32, {})
    calibration = Calibration(own.fingerprint, ProbabilityCalibration(0.5, -1.0), None)
    write_calibrations(other / CALIBRATION_NAME, [calibration])

    version = export_version(other, repository)

    manifest = read_manifest(repository)
    folder = version_folder(repository, version)
    stored = ModelVersion.read(folder)
    stored.verify(folder, manifest)
    assert version == 2
    assert stored.checkpoint == own.checkpoint != manifest.checkpoint
    assert (
        describe_model(repository, manifest, 2).probability_calibration == calibration.probability
    )
    assert describe_model(repository, manifest).probability_calibration is None
    assert all(path.read_bytes() == content for path, content in before.items())
    assert not list(tmp_path.rglob(".*"))


def test_a_model_of_regions_has_versions_too(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    config = JointConfig(
        vocabulary_size=tokenizer.get_vocab_size(),
        width=16,
        layer_count=1,
        head_count=2,
        image_source="regions",
        region_count=3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_checkpoint(tmp_path / "checkpoint", JointModel(config).eval(), tokenizer, {})
    manifest = export_model(tmp_path / "checkpoint", tmp_path / "repository", Precision.FP32)
    other = with_another_head(tmp_path / "checkpoint", tmp_path / "other")

    version = export_version(other, tmp_path / "repository")

    folder = version_folder(tmp_path / "repository", version)
    ModelVersion.read(folder).verify(folder, manifest)


def test_another_precision_is_a_version(checkpoint: Path, repository: Path, tmp_path: Path) -> None:
    version = export_version(checkpoint, repository, Precision.BF16)

    assert ModelVersion.read(version_folder(repository, version)).precision == "bf16"


def test_a_model_that_needs_its_own_index_is_not_a_version(
    checkpoint: Path, repository: Path, tmp_path: Path
) -> None:
    save_tiny_checkpoint(tmp_path / "backbone", seed=1)
    save_tiny_checkpoint(tmp_path / "words", texts=("one red dog", "drei Katzen oben", "dvě"))

    with pytest.raises(ExportMismatch, match="another image backbone"):
        export_version(tmp_path / "backbone", repository)
    with pytest.raises(ValueError, match=r"another text, pair_text, tokenizers.*again"):
        export_version(tmp_path / "words", repository)

    assert version_numbers(repository) == [1]
    assert not list(tmp_path.rglob(".*"))


def test_a_new_model_removes_the_versions_of_the_old_one(
    checkpoint: Path, repository: Path, tmp_path: Path
) -> None:
    export_version(checkpoint, repository)

    manifest: Manifest = export_model(checkpoint, repository, Precision.BF16)

    assert version_numbers(repository) == [1]
    manifest.verify(repository)
