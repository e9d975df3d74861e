"""Finds or exports the model that `tandem up` and the demo serve."""

from pathlib import Path

from tandem.cli.ingest.demo_note import say_if_demo
from tandem.cli.terminal.console import out
from tandem.model_io.repository.manifest import Manifest, manifest_file
from tandem.model_io.repository.model_repository import added_manifest_of
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.stack.start_refused import StartRefused


def check_has_model(repository: Path, option: str) -> None:
    """Raises StartRefused: where a model was meant, the demo's must not serve in its place."""
    if not manifest_file(repository).is_file():
        raise StartRefused(
            f"{repository} has no model: add one by tandem models add MODEL --model-repository "
            f"{repository}, or leave out {option}"
        )


def served_manifest(
    checkpoint: Path | None, repository: Path, precision: Precision | None
) -> Manifest:
    """Returns the manifest of the served model: the checkpoint, an added model, or the shipped one.

    An added model is not exported again, since its files are elsewhere.
    """
    added = None
    if checkpoint is None:
        shipped = CheckpointFiles.read(default_checkpoint())
        added = added_manifest_of(repository, shipped.weights_sha256)
    if added is None:
        manifest = exported(checkpoint or default_checkpoint(), repository, precision)
        say_if_demo(manifest.fingerprint)
        return manifest
    if precision not in (None, added.precision):
        raise StartRefused(
            f"{repository} has {added.family} in {added.precision}: add it again in {precision} "
            "with tandem models add, or give --checkpoint to serve another"
        )
    out.print(f"serving {added.family}, model {added.fingerprint[:12]}, of {repository}")
    return added


def exported(checkpoint: Path, repository: Path, precision: Precision | None = None) -> Manifest:
    """Exports if the repository has another model; raises StartRefused if it is not writable."""
    try:
        repository.mkdir(parents=True, exist_ok=True)  # Before torch takes its seconds.
        return export_if_stale(checkpoint, repository, precision)
    except OSError as error:
        raise StartRefused(
            f"{repository} cannot take the model ({(error.strerror or str(error)).lower()}): start "
            "it in a folder that can be written to, or give a --model-repository that has a model"
        ) from error
