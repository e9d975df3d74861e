"""A damaged file of a checkpoint or an export is named, before memory is taken for it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.export.export_manifest import export_manifest
from tandem.repository.manifest import JOINT_ENCODER, Manifest
from tandem.repository.model_version import (
    SERVING_NAME,
    VERSION_NAME,
    ModelVersion,
    Serving,
    serving,
    write_serving,
)
from tandem.repository.precision import Precision
from tests.modeling.published.test_published_fields import LFS_POINTER, NO_OBJECTS
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint


@pytest.fixture(name="checkpoint")
def _checkpoint(tmp_path: Path) -> Path:
    save_tiny_checkpoint(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def manifest_file(folder: Path) -> Callable[[], object]:
    """Writes a manifest; returns what reads it."""
    export_manifest(CheckpointFiles.read(folder), Precision.FP32, {}).write(
        folder / "manifest.json"
    )
    return lambda: Manifest.read(folder / "manifest.json")


def config_file(folder: Path) -> Callable[[], object]:
    """Returns what reads a checkpoint's config.json."""
    return lambda: load_checkpoint(folder)


def version_file(folder: Path) -> Callable[[], object]:
    """Writes what a version is; returns what reads it."""
    ModelVersion(
        fingerprint="a",
        precision="fp32",
        model_sha256="b",
        checkpoint={},
        calibration_fingerprint="c",
    ).write(folder)
    return lambda: ModelVersion.read(folder)


def serving_file(folder: Path) -> Callable[[], object]:
    """Writes who serves; returns what reads it."""
    (folder / JOINT_ENCODER).mkdir()
    write_serving(folder, Serving(version=2))
    return lambda: serving(folder)


FILES = {
    "manifest.json": manifest_file,
    "config.json": config_file,
    VERSION_NAME: version_file,
    SERVING_NAME: serving_file,
}


def test_a_missing_field_of_a_checkpoint_is_named(checkpoint: Path) -> None:
    """Nothing is made up: with another head_count the same weights are another function."""
    path = checkpoint / "config.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({key: each for key, each in said.items() if key != "head_count"}))
    with pytest.raises(ValueError, match=r"config\.json: it lacks head_count"):
        CheckpointFiles.read(checkpoint)


@pytest.mark.parametrize("name", FILES)
def test_an_invalid_file_is_named(checkpoint: Path, name: str) -> None:
    read = FILES[name](checkpoint)
    read()
    for content in NO_OBJECTS.values():
        (checkpoint / name).write_bytes(content)
        with pytest.raises(ValueError, match=Path(name).name) as caught:
            read()
        assert ("git lfs pull" in str(caught.value)) == (content == LFS_POINTER)


def test_invalid_training_notes_are_named(checkpoint: Path) -> None:
    (checkpoint / "training.json").write_text('{"recipe": []}')

    with pytest.raises(ValueError, match=r"training\.json is damaged"):
        load_checkpoint(checkpoint)


def test_no_room_is_made_for_weights_that_are_not_there(checkpoint: Path) -> None:
    """However large a model config.json tells of: of 65,536 wide it would be 400 GB."""
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"width": 65_536}))

    with pytest.raises(ValueError, match=r"the weights do not fit .* instead of \[.*65536"):
        load_checkpoint(checkpoint)


def test_weights_that_are_not_numbers_are_not_loaded(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["joint_encoder.pooler.bias"][0] = float("-inf")
    save_file(weights, checkpoint / "model.safetensors")

    with pytest.raises(ValueError, match=r"NaN or infinite: joint_encoder\.pooler\.bias"):
        load_checkpoint(checkpoint)


def test_weights_of_integers_are_not_loaded(checkpoint: Path) -> None:
    """They are another, quantised model's; as numbers they would be nonsense."""
    weights = load_file(checkpoint / "model.safetensors")
    weights["joint_encoder.pooler.bias"] = torch.ones(16, dtype=torch.int8)
    save_file(weights, checkpoint / "model.safetensors")

    with pytest.raises(ValueError, match=r"of another type joint_encoder\.pooler\.bias"):
        load_checkpoint(checkpoint)
