"""Exports only if the repository is stale, and imports torch only to export."""

from collections.abc import Mapping
from pathlib import Path

from tandem.model_io.calibration import carry_calibration
from tandem.model_io.config_pbtxt import joint_model_configs
from tandem.model_io.json_object import read_object
from tandem.model_io.manifest import (
    JOINT_ENCODER,
    MANIFEST_NAME,
    Manifest,
    config_file,
    read_manifest,
)
from tandem.model_io.precision import Precision, native_precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.export.export_manifest import export_manifest


def export_if_stale(
    checkpoint_folder: Path, repository: Path, precision: Precision | None = None
) -> Manifest:
    """Exports the checkpoint unless `repository` already holds its complete export.

    `precision` defaults to the one in the repository's manifest, so that a repair keeps the
    fingerprint, or else to this CPU's best. A newer calibration and this release's config.pbtxt are
    copied even without an export. Raises what export_model raises.
    """
    files = CheckpointFiles.read(checkpoint_folder)
    precision = precision or _told_precision(repository) or native_precision()
    manifest = _fresh_manifest(files, repository, precision)
    if manifest is not None:
        carry_calibration(checkpoint_folder, repository, manifest.fingerprint)
        return manifest
    # Imported here, because torch takes seconds that a second start should not wait for.
    from tandem.modeling.export.export import export_model

    return export_model(checkpoint_folder, repository, precision)


def _told_precision(repository: Path) -> Precision | None:
    try:
        # Of any format version: the export of an earlier release is repeated in its precision.
        fields = read_object(repository / JOINT_ENCODER / MANIFEST_NAME)
        return Precision(str(fields.get("precision")))
    except ValueError:
        return None


def _fresh_manifest(
    files: CheckpointFiles, repository: Path, precision: Precision
) -> Manifest | None:
    try:
        manifest = read_manifest(repository)
        configs = joint_model_configs(manifest)
        is_of_checkpoint = manifest == export_manifest(files, precision, manifest.models)
        if not is_of_checkpoint or manifest.models.keys() != configs.keys():
            return None
        _write_where_other(repository, configs)
        manifest.verify(repository)
    except (OSError, ValueError):
        return None
    return manifest


def _write_where_other(repository: Path, configs: Mapping[str, str]) -> None:
    # Without an export, which would remove the versions that were added since.
    for name, config_text in configs.items():
        path = config_file(repository, name)
        if not path.is_file() or path.read_bytes() != config_text.encode():
            path.write_text(config_text, encoding="utf-8")
