"""Manages the versions of a served model: folders of `joint_encoder`, and which one serves.

The exporter writes version 1, which the manifest describes. A later version is another joint
encoder with the same embeddings, image backbone and tokenizer, so that one index serves both: its
cross-encoder, precision or export differs. Each is a complete folder, named by its number, as
Triton requires.

    serving.json                  which version serves; version 1 if it is missing
    wanted.json                   which version was requested
    joint_encoder/2/model.pt      the version itself
    joint_encoder/2/version.json  its description
    joint_encoder/refused-3/      a rejected version, which never served; Triton ignores it
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from tandem.model_io.repository.calibration import CALIBRATION_NAME, Calibration, calibration_in
from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest
from tandem.model_io.repository.swap_attendance import ATTENDANCE_NAME
from tandem.platform.files.json_object import from_fields, read_object, within
from tandem.platform.files.whole_file import write_text_whole

FIRST_VERSION = 1
VERSION_NAME = "version.json"
SERVING_NAME = "serving.json"
_WANTED_NAME = "wanted.json"
_REFUSED_PREFIX = "refused-"
_MAX_VERSION = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """Describes a version, as stored in its folder."""

    fingerprint: str
    """Of the model with the same embeddings: the manifest's."""
    precision: str
    model_sha256: str
    checkpoint: Mapping[str, Any]
    """The checkpoint that was exported."""
    calibration_fingerprint: str
    """The key of its calibration, if it has one."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the folder's description; raises ValueError naming the file and the fault."""
        path = folder / VERSION_NAME
        try:
            return from_fields(cls, read_object(path))
        except ValueError as error:
            raise ValueError(f"{path} does not say what the version is: {error}") from error

    def write(self, folder: Path) -> None:
        _write(folder / VERSION_NAME, asdict(self))

    def verify(self, folder: Path, manifest: Manifest) -> None:
        """Raises ValueError unless the folder holds this model, and it fits the manifest."""
        if self.fingerprint != manifest.fingerprint:
            raise ValueError(
                f"{folder / VERSION_NAME} is of model {self.fingerprint[:12]}, and the repository "
                f"holds {manifest.fingerprint[:12]}"
            )
        path = folder / "model.pt"
        if not path.is_file():
            raise ValueError(f"{path} is missing")
        if sha256(path.read_bytes()).hexdigest() != self.model_sha256:
            raise ValueError(f"{path} is not the file that {VERSION_NAME} describes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Describes a request to serve a version."""

    request_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Describes which version serves, and the result of the last request."""

    version: int = FIRST_VERSION
    request_id: str = ""
    refusal: str = ""
    """Why the last request was rejected; empty if it was not."""


_State = TypeVar("_State", Serving, Wanted)


def serving(repository: Path) -> Serving:
    """Returns what serves; raises ValueError for an invalid file."""
    return _read(repository / SERVING_NAME, Serving) or Serving()


def write_serving(repository: Path, outcome: Serving) -> None:
    """Records which version serves; the file is replaced atomically."""
    _write(repository / SERVING_NAME, asdict(outcome))


def wanted(repository: Path) -> Wanted | None:
    """Returns the last request, if any; errors as `serving`."""
    return _read(repository / _WANTED_NAME, Wanted)


def write_wanted(repository: Path, request: Wanted | None) -> None:
    """Replaces the last request; None withdraws it."""
    path = repository / _WANTED_NAME
    if request is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, asdict(request))


def version_folder(repository: Path, version: int) -> Path:
    return repository / JOINT_ENCODER / str(version)


def version_numbers(repository: Path) -> list[int]:
    """Returns the versions in the repository, ascending, without rejected ones."""
    folders = (repository / JOINT_ENCODER).glob("[0-9]*")
    return sorted(int(path.name) for path in folders if path.name.isdecimal())


def next_version(repository: Path) -> int:
    """Returns a number that no version has, rejected ones included."""
    refused = (repository / JOINT_ENCODER).glob(f"{_REFUSED_PREFIX}*")
    numbers = [path.name.removeprefix(_REFUSED_PREFIX) for path in refused]
    taken = [int(number) for number in numbers if number.isdecimal()]
    return max([FIRST_VERSION, *version_numbers(repository), *taken]) + 1


def set_aside(repository: Path, version: int) -> Path:
    """Renames a rejected version's folder, so that no Triton loads it; returns the new name."""
    folder = version_folder(repository, version)
    aside = folder.with_name(f"{_REFUSED_PREFIX}{version}")
    if folder.is_dir():
        folder.rename(aside)
    return aside


def verify_serving_version(repository: Path, manifest: Manifest) -> int:
    """Returns which version serves; raises ValueError if it is damaged.

    Version 1 is verified by the manifest instead.
    """
    version = serving(repository).version
    if version != FIRST_VERSION:
        folder = version_folder(repository, version)
        try:
            ModelVersion.read(folder).verify(folder, manifest)
        except ValueError as error:
            raise ValueError(
                f"{SERVING_NAME} says that version {version} serves, but {error}; restore it, or "
                f"remove {repository / SERVING_NAME} to serve version 1"
            ) from error
    return version


def forget_versions(repository: Path) -> list[Path]:
    """Deletes our files of later versions and the swap state; returns their paths."""
    files = _version_files(repository)
    for path in files:
        path.unlink()
    for folder in {path.parent for path in files} - {repository}:
        with suppress(OSError):  # other files are not ours
            folder.rmdir()
    return files


def version_calibration(repository: Path, version: int) -> Calibration | None:
    """Returns a later version's calibration; errors as read_calibration."""
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
        and (path.parent / VERSION_NAME).is_file()  # or the folder is not ours
        and path.name in ("model.pt", VERSION_NAME, CALIBRATION_NAME)
    ]
    state_files = [repository / name for name in (SERVING_NAME, _WANTED_NAME, ATTENDANCE_NAME)]
    # The file that marks a folder as ours goes last, so that a deletion can be repeated.
    later.sort(key=lambda path: path.name == VERSION_NAME)
    return [*later, *(path for path in state_files if path.is_file())]


def _read(path: Path, kind: type[_State]) -> _State | None:
    if not path.exists():
        return None
    try:
        fields = read_object(path)
        if "version" not in fields:
            raise ValueError("it names no version")
        state = from_fields(kind, fields)
        within("version", state.version, FIRST_VERSION, _MAX_VERSION)
        return state
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; remove it") from error


def _write(path: Path, fields: Mapping[str, Any]) -> None:
    write_text_whole(path, json.dumps(fields, indent=2, sort_keys=True) + "\n")
