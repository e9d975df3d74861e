"""A start that exports only when it must, and imports torch only when it exports."""

from pathlib import Path

from tandem.model_io.calibration import carry_calibration
from tandem.model_io.config_pbtxt import joint_model_configs
from tandem.model_io.manifest import Manifest, config_file, read_manifest
from tandem.model_io.precision import Precision, native_precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.export_manifest import export_manifest


def export_if_stale(
    checkpoint_folder: Path, repository: Path, precision: Precision | None = None
) -> Manifest:
    """Exports unless `repository` already holds, whole, what this exporter makes of the checkpoint.

    Without a `precision`, the one that is there may stay; where nothing is, it is this CPU's best.
    A calibration that is newer than the export is carried over without one.
    Errors as export_model.
    """
    files = CheckpointFiles.read(checkpoint_folder)
    manifest = _fresh_manifest(files, repository, precision)
    if manifest is not None:
        carry_calibration(checkpoint_folder, repository, manifest.fingerprint)
        return manifest
    # Here, because torch takes seconds that the second start need not wait.
    from tandem.modeling.export import export_model

    return export_model(checkpoint_folder, repository, precision or native_precision())


def _fresh_manifest(
    files: CheckpointFiles, repository: Path, precision: Precision | None
) -> Manifest | None:
    try:
        manifest = read_manifest(repository)
        manifest.verify(repository)
        wanted = precision or Precision(manifest.precision)
        configs = {
            name: config_file(repository, name).read_text(encoding="utf-8")
            for name in manifest.models
        }
    except (OSError, ValueError):
        return None
    is_fresh = manifest == export_manifest(files, wanted, manifest.models)
    return manifest if is_fresh and configs == joint_model_configs(manifest) else None
