"""The manifest: written, read back, and held against the files it tells of."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.model_io.repository.manifest import (
    JOINT_ENCODER,
    MANIFEST_NAME,
    TOKENIZER_NAME,
    Manifest,
    config_file,
    model_file,
    read_manifest,
)


@pytest.fixture
def repository(tmp_path: Path, tiny_repository: Path) -> Path:
    """A copy that may be spoilt."""
    return shutil.copytree(tiny_repository, tmp_path / "model_repository")


def test_what_is_written_is_read(tmp_path: Path, tiny_manifest: Manifest) -> None:
    tiny_manifest.write(tmp_path / "manifest.json")

    read = Manifest.read(tmp_path / "manifest.json")
    assert read == tiny_manifest
    assert isinstance(read.text.lengths, tuple)


def flip_a_bit(path: Path) -> None:
    """Changes one byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [flip_a_bit, Path.unlink])
@pytest.mark.parametrize(
    "file_of",
    [
        lambda repository: repository / TOKENIZER_NAME,
        lambda repository: model_file(repository, JOINT_ENCODER),
    ],
    ids=["tokenizer", "joint_encoder"],
)
def test_a_changed_file_is_named(
    repository: Path, file_of: Callable[[Path], Path], spoil: Callable[[Path], None]
) -> None:
    spoil(file_of(repository))

    with pytest.raises(ValueError, match=f"{file_of(repository)} is (missing|not the file)"):
        read_manifest(repository).verify(repository)


def test_a_model_without_a_configuration_is_named(repository: Path) -> None:
    """Without its config.pbtxt a model would silently not be served."""
    config_file(repository, JOINT_ENCODER).unlink()

    with pytest.raises(ValueError, match=r"joint_encoder/config\.pbtxt is missing"):
        read_manifest(repository).verify(repository)


def test_the_tokenizer_is_checked_separately(repository: Path) -> None:
    model_file(repository, JOINT_ENCODER).unlink()
    manifest = read_manifest(repository)

    manifest.verify_tokenizers(repository)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not the file"):
        replace(manifest, tokenizers={TOKENIZER_NAME: "0" * 64}).verify_tokenizers(repository)


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 1},
        {"text_version": 0},
        {"embedding_dim": ...},
        {"unheard_of": 1},
    ],
    ids=str,
)
def test_a_manifest_of_another_form_is_refused(repository: Path, change: dict[str, object]) -> None:
    path = repository / MANIFEST_NAME
    fields = json.loads(path.read_text()) | change
    kept = {name: value for name, value in fields.items() if value is not ...}
    path.write_text(json.dumps(kept))

    with pytest.raises(ValueError, match=f"{path} is not a manifest of this version"):
        read_manifest(repository)


def test_without_a_manifest_there_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_manifest(tmp_path)
