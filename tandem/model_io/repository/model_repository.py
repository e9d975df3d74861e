"""Lists a model repository: our model, according to its manifest, and others."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tandem.model_io.repository.calibration import calibration_file
from tandem.model_io.repository.config_pbtxt import OWN_LINE, model_configs
from tandem.model_io.repository.manifest import (
    MANIFEST_NAME,
    Manifest,
    config_file,
    manifest_file,
    model_file,
    pt2_file,
    read_manifest,
)
from tandem.model_io.repository.model_version import forget_versions
from tandem.model_io.repository.neighbour_config import neighbour_config
from tandem.model_io.repository.neighbour_manifest import (
    NEIGHBOUR_MODEL,
    NeighbourModelManifest,
    neighbour_manifest_of,
    neighbours_file,
)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """Describes one folder that Triton loads as a model."""

    name: str
    manifest: Manifest | None
    """None if none of our manifests names it."""
    file_bytes: int | None
    """Size of the model's file; None if it is missing."""
    is_config_ours: bool
    """Whether config.pbtxt is the exporter's; the next add overwrites an edited one."""
    neighbours: NeighbourModelManifest | None = None
    """Of the networks that order by neighbours; None for other models."""


def stored_models(repository: Path) -> list[StoredModel]:
    """Returns every model of the repository, by name.

    Raises ValueError if there is none, or if a manifest is unreadable.
    """
    manifest = _manifest_if_any(repository)
    own_models = {} if manifest is None else dict(manifest.models)
    neighbours = neighbour_manifest_of(repository)
    networks = set() if neighbours is None else {NEIGHBOUR_MODEL}
    configs = {} if manifest is None else model_configs(manifest)
    if neighbours is not None:
        configs[NEIGHBOUR_MODEL] = neighbour_config(neighbours)
    configs_there = set(repository.glob("*/config.pbtxt")) - idle_configs(repository)
    names = {path.parent.name for path in configs_there}
    names |= own_models.keys() | networks
    if not names:
        raise ValueError(f"{repository} has no models; run tandem models add")
    return [
        StoredModel(
            name,
            manifest if name in own_models else None,
            _file_bytes(model_file(repository, name)),
            _is_own(repository, name, configs),
            neighbours if name in networks else None,
        )
        for name in sorted(names)
    ]


def idle_configs(repository: Path) -> set[Path]:
    """Returns each config.pbtxt of the exporter's that belongs to no model of the manifest.

    A checkout keeps those of the shipped model while another model serves. Triton would fail to
    load them, as they have no model file.
    """
    try:
        manifest = _manifest_if_any(repository)
    except ValueError:  # of another release, for instance
        return set()
    if manifest is None:
        return set()
    return {
        path
        for path in repository.glob("*/config.pbtxt")
        if path.parent.name not in manifest.models
        and not model_file(repository, path.parent.name).is_file()
        and OWN_LINE in path.read_text(encoding="utf-8")
    }


def our_manifest(repository: Path) -> Manifest:
    """Returns the manifest; raises ValueError if it is missing or not ours."""
    manifest = _manifest_if_any(repository)
    if manifest is None:
        raise ValueError(
            f"{repository} has no model of ours: {MANIFEST_NAME} is missing; run tandem models add"
        )
    return manifest


def added_manifest_of(repository: Path, shipped_sha256: str) -> Manifest | None:
    """Returns the manifest of a model that was added; None for the shipped one, or without any.

    That is a published model, or a checkpoint whose weights have another digest than the shipped
    one's. Raises ValueError naming a file that is missing or another.
    """
    try:
        manifest = _manifest_if_any(repository)
    except ValueError:  # of another release, for instance
        return None
    if manifest is None or manifest.checkpoint.get("weights_sha256") == shipped_sha256:
        return None
    manifest.verify(repository)
    return manifest


def check_swappable(manifest: Manifest, repository: Path) -> None:
    """Raises ValueError unless the model can have further versions."""
    if not manifest.is_joint:
        raise ValueError(
            f"{repository} holds {manifest.family}, and only a joint model has versions to swap; "
            "serve another model with tandem models add and ingest again"
        )


def remove_model(repository: Path) -> list[Path]:
    """Deletes our model's files, and nothing that its manifest does not name.

    Returns what was deleted. config.pbtxt stays: the exporter's is committed in a checkout, and an
    edited one is a user's work. The manifest is deleted last, so that an interrupted deletion can
    be repeated. Raises ValueError without a manifest of ours.
    """
    manifest = our_manifest(repository)
    models = [path(repository, name) for name in manifest.models for path in (model_file, pt2_file)]
    deleted = [*forget_versions(repository), *remove_neighbour_model(repository)]
    tokenizers = [repository / name for name in manifest.tokenizers]
    for path in (
        *models,
        *tokenizers,
        calibration_file(repository),
        manifest_file(repository),
    ):
        if path.is_file():
            path.unlink()
            deleted.append(path)
    for folder in {path.parent for path in models}:
        with suppress(OSError):  # other files in the version's folder are not ours
            folder.rmdir()
    return deleted


def remove_neighbour_model(repository: Path) -> list[Path]:
    """Deletes the neighbour model with its configuration, if there is one.

    Returns what was deleted. A configuration without the exporter's line stays.
    """
    path = neighbours_file(repository)
    if not path.is_file():
        return []
    path.unlink()
    deleted = [path]
    file, config = model_file(repository, NEIGHBOUR_MODEL), config_file(repository, NEIGHBOUR_MODEL)
    is_own = config.is_file() and OWN_LINE in config.read_text(encoding="utf-8")
    for each in (file, *([config] if is_own else [])):
        if each.is_file():
            each.unlink()
            deleted.append(each)
    for folder in (file.parent, config.parent):
        with suppress(OSError):  # other files are not ours
            folder.rmdir()
    return deleted


def _manifest_if_any(repository: Path) -> Manifest | None:
    try:
        return read_manifest(repository)
    except FileNotFoundError:
        return None


def _file_bytes(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _is_own(repository: Path, name: str, configs: Mapping[str, str]) -> bool:
    path = config_file(repository, name)
    return path.is_file() and configs.get(name) == path.read_text(encoding="utf-8")
