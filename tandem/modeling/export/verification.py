"""Verifies a model repository: its files, their outputs, and the checkpoint they came from."""

from pathlib import Path

from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest, model_file, pt2_file
from tandem.model_io.repository.model_repository import our_manifest
from tandem.model_io.repository.model_version import (
    FIRST_VERSION,
    verify_serving_version,
    version_folder,
)
from tandem.model_io.repository.neighbour_manifest import neighbour_manifest_of
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.export.export import modules_of
from tandem.modeling.export.export_manifest import export_manifest, is_export_of
from tandem.modeling.export.exported import ExportedModel, ExportMismatch
from tandem.modeling.export.lowered import lowered


def verify_repository(repository: Path, checkpoint_folder: Path | None = None) -> Manifest:
    """Returns the manifest of a valid repository.

    Every file must match its digest, and the models, including a later version that serves, must
    load and give valid outputs. With a checkpoint, the first version must give the checkpoint's
    outputs. Raises ValueError naming the faulty file, and ExportMismatch for models that give
    other outputs or come from another checkpoint.
    """
    manifest = our_manifest(repository)
    # Before anything is loaded, because loading a foreign file may run code.
    manifest.verify(repository)
    if (neighbours := neighbour_manifest_of(repository)) is not None:
        neighbours.verify(repository)
    version = verify_serving_version(repository, manifest)
    exported = ExportedModel.load(
        manifest, {name: model_file(repository, name) for name in manifest.models}
    )
    exported.check_answers()
    archives = {
        name: pt2_file(repository, name)
        for name, model in manifest.models.items()
        if model.pt2_sha256 is not None
    }
    ExportedModel.load(manifest, archives).check_answers()
    if version != FIRST_VERSION:
        later_file = version_folder(repository, version) / "model.pt"
        ExportedModel.load(manifest, {JOINT_ENCODER: later_file}).check_answers()
    if checkpoint_folder is not None:
        checkpoint = load_checkpoint(checkpoint_folder)
        _check_origin(manifest, checkpoint, repository, checkpoint_folder)
        exported.compare(modules_of(lowered(checkpoint.model, Precision(manifest.precision))))
    return manifest


def _check_origin(
    manifest: Manifest, checkpoint: Checkpoint, repository: Path, folder: Path
) -> None:
    precision = Precision(manifest.precision)
    if is_export_of(manifest, checkpoint.files, precision):
        return
    expected = export_manifest(checkpoint.files, precision, {})
    raise ExportMismatch(
        f"{repository} holds model {manifest.fingerprint[:12]}, and {folder} would export as "
        f"{expected.fingerprint[:12]} in {precision}; run tandem models add {folder}"
    )
