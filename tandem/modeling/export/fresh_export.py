"""A start that exports only when it must, and imports torch only when it exports."""

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
    """Exports unless `repository` already holds, whole, what this exporter makes of the checkpoint.

    Without a `precision`, the one that its manifest tells stays, or a repaired file would give the
    model another fingerprint; where nothing is told, it is this CPU's best. A calibration that is
    newer than the export is carried over without one, and so is what this release tells Triton of
    the models. Errors as export_model.
    """
    files = CheckpointFiles.read(checkpoint_folder)
    precision = precision or _told_precision(repository) or native_precision()
    manifest = _fresh_manifest(files, repository, precision)
    if manifest is not None:
        carry_calibration(checkpoint_folder, repository, manifest.fingerprint)
        return manifest
    # Here, because torch takes seconds that the second start need not wait.
    from tandem.modeling.export.export import export_model

    return export_model(checkpoint_folder, repository, precision)


def _told_precision(repository: Path) -> Precision | None:
    try:
        # Of whatever format: an export of an earlier release is made again as it was.
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
    # Alone: an export anew would forget the versions that were added to the model since.
    for name, config_text in configs.items():
        path = config_file(repository, name)
        if not path.is_file() or path.read_bytes() != config_text.encode():
            path.write_text(config_text, encoding="utf-8")
