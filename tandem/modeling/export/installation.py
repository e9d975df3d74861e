"""Installs the Triton models of one model in a repository, once they are held to their modules.

The files are installed only if, loaded again, they give what the eager modules give, for every kind
of input, batch size and length that is served.
"""

import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tokenizers import Tokenizer

from tandem.model_io.repository.config_pbtxt import OWN_LINE, model_configs
from tandem.model_io.repository.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    Manifest,
    config_file,
    manifest_file,
    model_file,
    pt2_file,
)
from tandem.model_io.repository.model_repository import remove_neighbour_model
from tandem.model_io.repository.model_version import forget_versions
from tandem.model_io.repository.neighbour_manifest import NEIGHBOUR_MODEL, neighbour_manifest_of
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.exported import ExportedModel, Modules, write_exported, write_pt2

_STAGING_NAME = ".staging"


def install_model(
    modules: Modules,
    manifest: Manifest,
    tokenizers: Mapping[str, Tokenizer],
    repository: Path,
    *,
    with_pt2: bool = False,
    before_manifest: Callable[[], None] = lambda: None,
) -> Manifest:
    """Writes the modules as Triton models, and returns the manifest with their digests.

    The manifest's own digests do not matter. Also writes model.pt2 if `with_pt2`; int8 has none,
    and raises ValueError. Raises ExportMismatch, having written nothing, unless exported and eager
    modules agree within 1e-5 (fp32) or 1e-3. The manifest is written last, so a repository whose
    export was interrupted has none and no service starts on it.
    """
    if with_pt2 and manifest.precision == Precision.INT8:
        raise ValueError(
            "torch.export has no form for the packed weights of int8, so there is no model.pt2 of "
            "it; leave --pt2 out, or take another --precision"
        )
    # Staged in the target folder, where Triton opens only model.pt: on the right disk whatever is a
    # mount or a link, so that a rename installs it.
    files = {name: _staged(model_file(repository, name)) for name in modules}
    archives = {name: _staged(pt2_file(repository, name)) for name in modules if with_pt2}
    _remove_staging(files)
    try:
        for path in files.values():
            path.parent.mkdir(parents=True)
        write_exported(modules, manifest, files)
        ExportedModel.load(manifest, files).compare(modules)
        if archives:
            write_pt2(modules, manifest, archives)
            ExportedModel.load(manifest, archives).compare(modules)
        whole = _with_digests(manifest, files, archives)
        manifest_file(repository).unlink(missing_ok=True)
        _place(whole, repository, files, archives)
        for name, tokenizer in tokenizers.items():
            (repository / name).write_text(tokenizer.to_str(), encoding="utf-8")
        before_manifest()
        whole.write(manifest_file(repository))
    finally:
        _remove_staging(files)
    return whole


def _place(
    manifest: Manifest, repository: Path, files: Mapping[str, Path], archives: Mapping[str, Path]
) -> None:
    forget_versions(repository)
    kept = _kept_neighbours(repository, manifest)
    _remove_other_models(repository, {*manifest.models, *kept})
    for name, config_text in model_configs(manifest).items():
        files[name].replace(model_file(repository, name))
        if name in archives:
            archives[name].replace(pt2_file(repository, name))
        else:
            pt2_file(repository, name).unlink(missing_ok=True)
        config_file(repository, name).write_text(config_text, encoding="utf-8")


def _kept_neighbours(repository: Path, manifest: Manifest) -> set[str]:
    """Returns the networks that order by neighbours; removes those of another model."""
    with suppress(ValueError):  # of another release, for instance
        neighbours = neighbour_manifest_of(repository)
        if neighbours is not None and neighbours.base_fingerprint == manifest.fingerprint:
            return {NEIGHBOUR_MODEL}
    remove_neighbour_model(repository)
    return set()


def _remove_other_models(repository: Path, names: Collection[str]) -> None:
    """Removes what the exporter wrote for another model, which Triton would still load.

    In a checkout config.pbtxt stays, because the shipped model's are committed; `tandem up` skips
    those without a model (`idle_configs`).
    """
    is_checkout = any((folder / ".git").exists() for folder in repository.resolve().parents)
    for path in repository.glob("*/config.pbtxt"):
        name = path.parent.name
        if name in names or OWN_LINE not in path.read_text(encoding="utf-8"):
            continue
        for file in (model_file(repository, name), pt2_file(repository, name)):
            file.unlink(missing_ok=True)
        if not (is_checkout and name in (JOINT_ENCODER, IMAGE_BACKBONE)):
            path.unlink()
        for folder in (path.parent / "1", path.parent):
            with suppress(OSError):  # other files are not ours
                folder.rmdir()


def _with_digests(
    manifest: Manifest, files: Mapping[str, Path], archives: Mapping[str, Path]
) -> Manifest:
    models = {
        name: replace(
            model,
            sha256=_sha256(files[name]),
            pt2_sha256=_sha256(archives[name]) if name in archives else None,
        )
        for name, model in manifest.models.items()
    }
    return replace(manifest, models=models)


def _staged(target: Path) -> Path:
    return target.parent / _STAGING_NAME / target.name


def _remove_staging(files: Mapping[str, Path]) -> None:
    for path in files.values():
        shutil.rmtree(path.parent, ignore_errors=True)
        with suppress(OSError):  # not empty, as after every successful export
            path.parents[1].rmdir()
            path.parents[2].rmdir()


def _sha256(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
