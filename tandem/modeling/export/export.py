"""Exports a checkpoint as the two models that Triton loads.

The exporter installs the files only if, loaded again, they give what the eager model gives, for
every kind of input, batch size and length that is served.
"""

import shutil
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tandem.model_io.calibration import carry_calibration
from tandem.model_io.config_pbtxt import joint_model_configs
from tandem.model_io.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    MANIFEST_NAME,
    Manifest,
    config_file,
    model_file,
    tokenizer_file,
)
from tandem.model_io.model_version import forget_versions
from tandem.model_io.precision import Precision
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.exported import ExportedModel, write_exported
from tandem.modeling.export.lowered import lowered
from tandem.modeling.image_tokens import NoPixels

_STAGING_NAME = ".staging"


def export_model(checkpoint_folder: Path, repository: Path, precision: Precision) -> Manifest:
    """Writes model files, config.pbtxt and manifest.json into `repository`; returns the manifest.

    Copies the checkpoint's calibration of this precision, if it has one. Raises ExportMismatch,
    having written nothing, unless exported and eager model agree within 1e-5 (fp32) or 1e-3, and
    ValueError for a folder that is no checkpoint or one that reads no pixels. The manifest is
    written last, so a repository whose export was interrupted has none and no service starts on it.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    if isinstance(checkpoint.model.image_backbone, NoPixels):
        raise ValueError(
            f"{checkpoint_folder} reads a detector's regions, which cannot be served from pixels; "
            "measure it with tandem evaluate --checkpoint --regions"
        )
    model = lowered(checkpoint.model, precision)
    # Staged in the target folder, where Triton opens only model.pt: on the right disk whatever is a
    # mount or a link, so that a rename installs it.
    files = {
        name: model_file(repository, name).parent / _STAGING_NAME / f"{name}.pt"
        for name in (IMAGE_BACKBONE, JOINT_ENCODER)
    }
    _remove_staging(files)
    try:
        for path in files.values():
            path.parent.mkdir(parents=True)
        manifest = export_manifest(checkpoint.files, precision, {})
        write_exported(model, manifest, files[IMAGE_BACKBONE], files[JOINT_ENCODER])
        manifest = replace(manifest, models={name: _sha256(path) for name, path in files.items()})
        exported = ExportedModel.load(manifest, files[IMAGE_BACKBONE], files[JOINT_ENCODER])
        exported.compare(model)
        _install(checkpoint, manifest, repository, files)
        carry_calibration(checkpoint_folder, repository, manifest.fingerprint)
        manifest.write(repository / JOINT_ENCODER / MANIFEST_NAME)
    finally:
        _remove_staging(files)
    return manifest


def _install(
    checkpoint: Checkpoint, manifest: Manifest, repository: Path, files: dict[str, Path]
) -> None:
    (repository / JOINT_ENCODER / MANIFEST_NAME).unlink(missing_ok=True)
    forget_versions(repository)
    for name, config_text in joint_model_configs(manifest).items():
        files[name].replace(model_file(repository, name))
        config_file(repository, name).write_text(config_text, encoding="utf-8")
    tokenizer_file(repository).write_text(checkpoint.tokenizer.to_str(), encoding="utf-8")


def _remove_staging(files: dict[str, Path]) -> None:
    for path in files.values():
        shutil.rmtree(path.parent, ignore_errors=True)
        with suppress(OSError):  # not empty, as after every successful export
            path.parents[1].rmdir()
            path.parents[2].rmdir()


def _sha256(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
