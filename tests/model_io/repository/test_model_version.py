"""Versions of a model as files: what they are, which one serves, and what is refused by name."""

import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tandem.errors import ModelUnavailable
from tandem.model_io.repository.followed_version import FollowedVersion
from tandem.model_io.repository.manifest import JOINT_ENCODER, MANIFEST_NAME, Manifest
from tandem.model_io.repository.model_version import (
    ModelVersion,
    Serving,
    Wanted,
    forget_versions,
    next_version,
    serving,
    set_aside,
    version_folder,
    version_numbers,
    wanted,
    write_serving,
    write_wanted,
)


@pytest.fixture(name="repository")
def _repository(tiny_repository: Path, tmp_path: Path) -> Path:
    """A copy, for a test to change."""
    return shutil.copytree(tiny_repository, tmp_path / "repository")


def add_version(repository: Path, manifest: Manifest, content: bytes = b"a model") -> int:
    """Writes a version whose model is made up; returns its number."""
    version = next_version(repository)
    folder = version_folder(repository, version)
    folder.mkdir()
    (folder / "model.pt").write_bytes(content)
    ModelVersion(
        fingerprint=manifest.fingerprint,
        precision="bf16",
        model_sha256=sha256(content).hexdigest(),
        checkpoint={},
        calibration_fingerprint="",
    ).write(folder)
    return version


def test_the_first_version_serves_by_default(repository: Path) -> None:
    assert serving(repository) == Serving(version=1)
    assert wanted(repository) is None

    write_serving(repository, Serving(version=4, request_id="a", refusal="why"))
    write_wanted(repository, Wanted(request_id="b", version=5))

    assert serving(repository) == Serving(version=4, request_id="a", refusal="why")
    assert wanted(repository) == Wanted(request_id="b", version=5)


def test_no_version_number_is_reused(repository: Path, tiny_manifest: Manifest) -> None:
    """Nor that of a version that was refused, which lies where no Triton looks."""
    assert add_version(repository, tiny_manifest) == 2
    assert add_version(repository, tiny_manifest) == 3

    set_aside(repository, 3)

    assert version_numbers(repository) == [1, 2]
    assert next_version(repository) == 4


def test_a_version_with_a_false_manifest_is_refused(
    repository: Path, tiny_manifest: Manifest
) -> None:
    folder = version_folder(repository, add_version(repository, tiny_manifest))
    version = ModelVersion.read(folder)
    version.verify(folder, tiny_manifest)  # the control

    with pytest.raises(ValueError, match=r"version.json is of model 0000.*repository holds"):
        replace(version, fingerprint="0" * 64).verify(folder, tiny_manifest)
    (folder / "model.pt").write_bytes(b"a nodel")
    with pytest.raises(ValueError, match=r"model\.pt is not the file that version.json describes"):
        version.verify(folder, tiny_manifest)
    (folder / "model.pt").unlink()
    with pytest.raises(ValueError, match=r"model\.pt is missing"):
        version.verify(folder, tiny_manifest)
    (folder / "version.json").write_text("{")
    with pytest.raises(ValueError, match="does not say what the version is"):
        ModelVersion.read(folder)


def test_versions_are_removed_with_their_model(repository: Path, tiny_manifest: Manifest) -> None:
    add_version(repository, tiny_manifest)
    set_aside(repository, add_version(repository, tiny_manifest))
    write_serving(repository, Serving(version=2))
    note = version_folder(repository, 2) / "note.txt"
    note.write_text("mine")

    deleted = forget_versions(repository)

    assert len(deleted) == 5
    assert serving(repository) == Serving(version=1)
    assert note.is_file()
    assert not list((repository / JOINT_ENCODER).glob("refused-*"))
    tiny_manifest.verify(repository)


@pytest.mark.parametrize(
    "content",
    ["{", "{}", '{"version": 2, "request_id": "a", "model": "new"}'],
)
def test_a_damaged_version_file_is_named(repository: Path, content: str) -> None:
    for name, read in (("serving.json", serving), ("wanted.json", wanted)):
        path = repository / name
        path.write_text(content)

        with pytest.raises(ValueError, match=f"{path} is damaged: .*; remove it"):
            read(repository)

    (repository / "wanted.json").write_text('{"version": 2}')
    with pytest.raises(ValueError, match=r"wanted\.json is damaged: .*request_id.*; remove it"):
        wanted(repository)


def test_a_service_follows_the_current_version(repository: Path, tiny_manifest: Manifest) -> None:
    followed = FollowedVersion(repository, tiny_manifest)
    assert followed.number() == followed.describe().version == 1

    version = add_version(repository, tiny_manifest)
    write_serving(repository, Serving(version=version))
    assert followed.number() == 1
    followed.look()
    assert followed.number() == followed.describe().version == version
    assert followed.describe().precision == "bf16"
    assert followed.describe(1).precision == "fp32"

    write_serving(repository, Serving(version=99))
    followed.look()
    (repository / "serving.json").write_text("{")
    followed.look()
    assert followed.number() == version
    with pytest.raises(ModelUnavailable, match="version 99 is not available here"):
        followed.calibration(99)


def test_a_service_does_not_continue_with_another_model(
    repository: Path, tiny_manifest: Manifest
) -> None:
    """A Triton that is restarted would load it. The same model, exported again, is the same."""
    followed = FollowedVersion(repository, tiny_manifest)
    path = repository / MANIFEST_NAME
    models = tiny_manifest.models
    encoder = replace(models[JOINT_ENCODER], sha256="other bytes")
    other = {**models, JOINT_ENCODER: encoder}
    replace(tiny_manifest, models=other).write(path)
    followed.look()
    path.unlink()  # as while an export writes
    followed.look()
    replace(tiny_manifest, fingerprint="b" * 64).write(path)

    with pytest.raises(ModelUnavailable, match=r"holds model bbbbbbbbbbbb.*restart Triton"):
        followed.look()

    tiny_manifest.write(path)
    followed.look()
