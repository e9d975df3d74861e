"""Exports only if the repository is stale, and imports torch only to export."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tandem.model_io.repository.calibration import carry_calibration
from tandem.model_io.repository.config_pbtxt import model_configs
from tandem.model_io.repository.manifest import (
    Manifest,
    config_file,
    manifest_file,
    read_manifest,
)
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.export.export_manifest import is_export_of
from tandem.platform.files.json_object import read_object


def export_if_stale(
    checkpoint_folder: Path, repository: Path, precision: Precision | None = None
) -> Manifest:
    """Exports the checkpoint unless `repository` already holds its complete export.

    `precision` defaults to the one in the repository's manifest, so that a repair keeps the
    fingerprint, or else to this CPU's best. A newer calibration and this release's config.pbtxt are
    copied even without an export. Raises what export_model raises.
    """
    files = CheckpointFiles.read(checkpoint_folder)
    precision = precision or _stored_precision(repository) or native_precision()
    manifest = _fresh_manifest(files, repository, precision)
    if manifest is not None:
        carry_calibration(checkpoint_folder, repository, manifest.fingerprint)
        return manifest
    # Imported here, because torch takes seconds that a second start should not wait for.
    from tandem.modeling.export.export import export_model

    return export_model(checkpoint_folder, repository, precision)


def _stored_precision(repository: Path) -> Precision | None:
    # Of any format version: the export of an earlier release is repeated in its precision.
    with suppress(ValueError):
        return Precision(str(read_object(manifest_file(repository)).get("precision")))
    return None


def _fresh_manifest(
    files: CheckpointFiles, repository: Path, precision: Precision
) -> Manifest | None:
    try:
        manifest = read_manifest(repository)
        configs = model_configs(manifest)
        if not is_export_of(manifest, files, precision):
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
