"""Exports a checkpoint's joint encoder as a further version of a serving repository."""

import shutil
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import torch

from tandem.model_io.repository.calibration import (
    CALIBRATION_NAME,
    calibration_in,
    write_calibrations,
)
from tandem.model_io.repository.manifest import IMAGE_BACKBONE, JOINT_ENCODER, Manifest, model_file
from tandem.model_io.repository.model_repository import check_swappable, our_manifest
from tandem.model_io.repository.model_version import ModelVersion, next_version, version_folder
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.export.export import modules_of
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.exported import (
    ExportedModel,
    ExportMismatch,
    write_exported,
)
from tandem.modeling.export.lowered import lowered
from tandem.modeling.export.samples import sample_pixels

# Fields in which a version may differ from the first.
_OWN_FIELDS = {"fingerprint", "precision", "models", "checkpoint"}
# Relative to the tokens' norm: precisions of one backbone differ by less, other backbones by all.
_TOKEN_TOLERANCE = 0.02


def export_version(
    checkpoint_folder: Path, repository: Path, precision: Precision | None = None
) -> int:
    """Writes the checkpoint's joint encoder as the repository's next version; returns its number.

    `precision` defaults to the repository's. The serving version stays in place. Raises ValueError
    where tokenizer, shapes or image backbone differ from the repository's, and ExportMismatch like
    export_model.
    """
    manifest = our_manifest(repository)
    check_swappable(manifest, repository)
    checkpoint = load_checkpoint(checkpoint_folder)
    chosen = precision or Precision(manifest.precision)
    own_manifest = export_manifest(checkpoint.files, chosen, {})
    _check_same_shape(own_manifest, manifest, checkpoint_folder, repository)
    model = lowered(checkpoint.model, chosen)
    version = next_version(repository)
    # On the target disk, under a name that Triton does not take for a version, so that it never
    # sees half a folder.
    staging = version_folder(repository, version).with_name(f".version-{version}")
    shutil.rmtree(staging, ignore_errors=True)
    folder = staging / str(version)
    folder.mkdir(parents=True)
    try:
        modules = modules_of(model)
        files = {JOINT_ENCODER: folder / "model.pt"}
        if IMAGE_BACKBONE in modules:
            files[IMAGE_BACKBONE] = staging / "backbone.pt"
        write_exported(modules, own_manifest, files)
        exported = ExportedModel.load(own_manifest, files)
        exported.compare(modules)
        if IMAGE_BACKBONE in modules:
            _check_same_backbone(exported, manifest, repository, checkpoint_folder)
        calibration = calibration_in(checkpoint_folder / CALIBRATION_NAME, own_manifest.fingerprint)
        if calibration is not None:
            write_calibrations(folder / CALIBRATION_NAME, [calibration])
        ModelVersion(
            fingerprint=manifest.fingerprint,
            precision=chosen,
            model_sha256=sha256(files[JOINT_ENCODER].read_bytes()).hexdigest(),
            checkpoint=own_manifest.checkpoint,
            calibration_fingerprint=own_manifest.fingerprint,
        ).write(folder)
        folder.rename(version_folder(repository, version))
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return version


def _check_same_shape(own: Manifest, first: Manifest, checkpoint: Path, repository: Path) -> None:
    theirs, ours = asdict(own), asdict(first)
    differing = [name for name in ours if name not in _OWN_FIELDS and theirs[name] != ours[name]]
    if differing:
        raise ValueError(
            f"{checkpoint} has another {', '.join(differing)} than {repository}, so it cannot be a "
            "version of its model; serve it with tandem models add and ingest again"
        )


@torch.inference_mode()
def _check_same_backbone(
    exported: ExportedModel, manifest: Manifest, repository: Path, checkpoint: Path
) -> None:
    serving = ExportedModel.load(manifest, {IMAGE_BACKBONE: model_file(repository, IMAGE_BACKBONE)})
    pixels = sample_pixels(manifest, 2)
    theirs, ours = (each.parts[IMAGE_BACKBONE](pixels).float() for each in (exported, serving))
    off = float((theirs - ours).norm() / ours.norm())
    if not off <= _TOKEN_TOLERANCE:
        raise ExportMismatch(
            f"{checkpoint} has another image backbone than {repository} (its image tokens differ "
            f"by {off:.0%}), and indexes hold tokens of the one that is there; serve it with "
            "tandem models add and ingest again"
        )
