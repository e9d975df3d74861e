"""Versions of a served model: folders of `joint_encoder`, and which of them answers.

Version 1 is what the exporter wrote, and the manifest tells of it. A later one is another joint
encoder with the same embeddings, over the same image backbone and tokenizer, so that one index
serves both: its cross-encoder, its precision or its export differ. Each lies whole in a folder
whose name is its number, which is how Triton knows it.

    joint_encoder/serving.json    which version answers; version 1 where there is none
    joint_encoder/wanted.json     which one shall, as somebody asked
    joint_encoder/2/model.pt      the version itself
    joint_encoder/2/version.json  what it is
    joint_encoder/refused-3/      one that was tried and never served; Triton sees no such folder
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from tandem.model_io.calibration import CALIBRATION_NAME, Calibration, calibration_in
from tandem.model_io.json_object import from_fields, read_object, within
from tandem.model_io.manifest import JOINT_ENCODER, Manifest
from tandem.model_io.swap_attendance import ATTENDANCE_NAME

FIRST_VERSION = 1
VERSION_NAME = "version.json"
SERVING_NAME = "serving.json"
_WANTED_NAME = "wanted.json"
_REFUSED_PREFIX = "refused-"
_MAX_VERSION = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """What a version's folder holds."""

    fingerprint: str
    """Of the model whose embeddings it has: the manifest's."""
    precision: str
    model_sha256: str
    checkpoint: Mapping[str, Any]
    """What it was exported from."""
    calibration_fingerprint: str
    """Under which its calibration is kept, where it has one."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Returns what the folder says; raises ValueError naming the file and what is wrong."""
        path = folder / VERSION_NAME
        try:
            return from_fields(cls, read_object(path))
        except ValueError as error:
            raise ValueError(f"{path} does not say what the version is: {error}") from error

    def write(self, folder: Path) -> None:
        """Writes it into the folder."""
        _write(folder / VERSION_NAME, asdict(self))

    def verify(self, folder: Path, manifest: Manifest) -> None:
        """Raises ValueError unless the folder's model is this one, and one for the manifest's."""
        if self.fingerprint != manifest.fingerprint:
            raise ValueError(
                f"{folder / VERSION_NAME} is of model {self.fingerprint[:12]}, and the repository "
                f"holds {manifest.fingerprint[:12]}"
            )
        path = folder / "model.pt"
        if not path.is_file():
            raise ValueError(f"{path} is missing")
        if sha256(path.read_bytes()).hexdigest() != self.model_sha256:
            raise ValueError(f"{path} is not the file that {VERSION_NAME} tells of")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request that a version shall serve."""

    request_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Which version serves, and what became of the last request."""

    version: int = FIRST_VERSION
    request_id: str = ""
    refusal: str = ""
    """Why the last request was refused; empty where it was not."""


_Said = TypeVar("_Said", Serving, Wanted)


def serving(repository: Path) -> Serving:
    """Returns what serves; raises ValueError for a file that does not say so."""
    return _read(repository / JOINT_ENCODER / SERVING_NAME, Serving) or Serving()


def write_serving(repository: Path, outcome: Serving) -> None:
    """Says which version serves; who reads meanwhile sees this or what was before."""
    _write(repository / JOINT_ENCODER / SERVING_NAME, asdict(outcome))


def wanted(repository: Path) -> Wanted | None:
    """Returns the last request, if there ever was one; errors as `serving`."""
    return _read(repository / JOINT_ENCODER / _WANTED_NAME, Wanted)


def write_wanted(repository: Path, request: Wanted | None) -> None:
    """Leaves a request in the place of the last; None takes it back."""
    path = repository / JOINT_ENCODER / _WANTED_NAME
    if request is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, asdict(request))


def version_folder(repository: Path, version: int) -> Path:
    """Returns where a version lies."""
    return repository / JOINT_ENCODER / str(version)


def version_numbers(repository: Path) -> list[int]:
    """Returns the versions that lie there, ascending, refused ones not among them."""
    folders = (repository / JOINT_ENCODER).glob("[0-9]*")
    return sorted(int(path.name) for path in folders if path.name.isdecimal())


def next_version(repository: Path) -> int:
    """Returns a number that no version has, nor one that was refused."""
    refused = (repository / JOINT_ENCODER).glob(f"{_REFUSED_PREFIX}*")
    taken = [int(path.name.removeprefix(_REFUSED_PREFIX)) for path in refused]
    return max([FIRST_VERSION, *version_numbers(repository), *taken]) + 1


def set_aside(repository: Path, version: int) -> Path:
    """Renames a refused version's folder, so that no Triton loads it; returns the new name."""
    folder = version_folder(repository, version)
    aside = folder.with_name(f"{_REFUSED_PREFIX}{version}")
    if folder.is_dir():
        folder.rename(aside)
    return aside


def verify_serving_version(repository: Path, manifest: Manifest) -> int:
    """Returns which version serves; raises ValueError unless a later one is whole.

    The first is the manifest's to verify.
    """
    version = serving(repository).version
    if version != FIRST_VERSION:
        folder = version_folder(repository, version)
        try:
            ModelVersion.read(folder).verify(folder, manifest)
        except ValueError as error:
            raise ValueError(
                f"version {version} is said to serve, and {error}; put it back, or remove "
                f"{repository / JOINT_ENCODER / SERVING_NAME} to have version 1 serve"
            ) from error
    return version


def forget_versions(repository: Path) -> list[Path]:
    """Deletes all versions but the first, and who serves; returns the files, all of them ours."""
    files = _version_files(repository)
    for path in files:
        path.unlink()
    for folder in {path.parent for path in files} - {repository / JOINT_ENCODER}:
        with suppress(OSError):  # what else lies there is not ours
            folder.rmdir()
    return files


def version_calibration(repository: Path, version: int) -> Calibration | None:
    """Returns what was measured of a later version; errors as read_calibration."""
    folder = version_folder(repository, version)
    fingerprint = ModelVersion.read(folder).calibration_fingerprint
    return calibration_in(folder / CALIBRATION_NAME, fingerprint)


def _version_files(repository: Path) -> list[Path]:
    folder = repository / JOINT_ENCODER
    later = [
        path
        for name in ("[0-9]*", f"{_REFUSED_PREFIX}*")
        for path in folder.glob(f"{name}/*")
        if path.parent.name != str(FIRST_VERSION)
        and (path.parent / VERSION_NAME).is_file()  # or the folder is somebody else's
        and path.name in ("model.pt", VERSION_NAME, CALIBRATION_NAME)
    ]
    said = [folder / name for name in (SERVING_NAME, _WANTED_NAME, ATTENDANCE_NAME)]
    # What tells that a folder is ours goes last, so that what broke off can be repeated.
    later.sort(key=lambda path: path.name == VERSION_NAME)
    return [*later, *(path for path in said if path.is_file())]


def _read(path: Path, kind: type[_Said]) -> _Said | None:
    if not path.exists():
        return None
    try:
        fields = read_object(path)
        if "version" not in fields:
            raise ValueError("it names no version")
        said = from_fields(kind, fields)
        within("version", said.version, FIRST_VERSION, _MAX_VERSION)
        return said
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; remove it") from error


def _write(path: Path, fields: Mapping[str, Any]) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    fresh.replace(path)
