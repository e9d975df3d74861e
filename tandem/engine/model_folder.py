"""Finds the model that an engine runs, or exports it."""

from dataclasses import dataclass
from pathlib import Path

from tandem.chassis.telemetry.log import get_logger
from tandem.model_io.repository.manifest import Manifest, manifest_file, read_manifest
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.demo_model import DEMO_NOTE, is_demo
from tandem.modeling.export.fresh_export import export_if_stale

_REPOSITORY_NAME = "model_repository"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Holds an exported model and where it is."""

    repository: Path
    manifest: Manifest

    @classmethod
    def find(cls, folder: Path, model: Path | None) -> "ModelFolder":
        """Returns the model of an engine's folder.

        `model` is a model repository, used where it is, or a checkpoint, exported into the folder.
        Without it, the folder's export is used, which at first is of the shipped model. Raises
        ValueError for files that are not a model.
        """
        found = cls._found(folder, model)
        if is_demo(found.manifest.fingerprint):
            get_logger().warning(DEMO_NOTE)
        return found

    @classmethod
    def _found(cls, folder: Path, model: Path | None) -> "ModelFolder":
        own = folder / _REPOSITORY_NAME
        if model is None and manifest_file(own).exists():
            return cls._read(own)
        if model is not None and manifest_file(model).exists():
            return cls._read(model)
        if model is not None and not model.is_dir():
            what = "is a file" if model.exists() else "is not there"
            raise ValueError(
                f"{model} {what}: model is the folder of a checkpoint, as tandem train "
                "writes it, or a model repository"
            )
        return cls(own, export_if_stale(model or default_checkpoint(), own))

    @classmethod
    def _read(cls, repository: Path) -> "ModelFolder":
        manifest = read_manifest(repository)
        manifest.verify(repository)
        return cls(repository, manifest)
