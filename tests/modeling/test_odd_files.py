"""Our own folders may be odd in every field too: a checkpoint, an export, what goes with it."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tandem.contract.model_description import AdaptiveDepthRule, ProbabilityCalibration
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig
from tandem.modeling.export.export_manifest import export_manifest
from tandem.repository.calibration import Calibration, read_calibrations, write_calibrations
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

ODD_VALUES: tuple[Any, ...] = ("384", None, -1, 10**12, [])
# What no file has wrongly, since it is a text that is never compared, or may be unset.
FREE = {
    *("family", "fingerprint", "checkpoint", "model_sha256", "licence"),
    *("calibration_fingerprint", "request_id", "refusal", "precision"),
}


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
    "manifest.json": (manifest_file, Manifest),
    "config.json": (config_file, JointConfig),
    VERSION_NAME: (version_file, ModelVersion),
    SERVING_NAME: (serving_file, Serving),
}


@pytest.mark.parametrize("name", FILES)
def test_every_odd_value_of_every_field_is_refused_by_its_name(checkpoint: Path, name: str) -> None:
    """Of each type, too large and too small; and the file as it was is read."""
    write, kind = FILES[name]
    read = write(checkpoint)
    read()
    path = checkpoint / name
    said = json.loads(path.read_text())
    for field in fields(kind):
        for value in ODD_VALUES:
            is_unset = value is None and field.default is None
            if is_unset or (field.name in FREE and value == "384"):
                continue
            path.write_text(json.dumps(said | {field.name: value}))
            with pytest.raises(ValueError, match=path.name) as caught:
                read()
            why = str(caught.value)
            assert field.name in why or "format " in why or "do not fit" in why, (field, value)


def test_every_missing_field_of_a_checkpoint_is_named(checkpoint: Path) -> None:
    """Nothing is made up: with another head_count the same weights are another function."""
    path = checkpoint / "config.json"
    said = json.loads(path.read_text())
    for name in ("vocabulary_size", "width", "head_count", "layer_count", "image_size"):
        path.write_text(json.dumps({key: value for key, value in said.items() if key != name}))
        with pytest.raises(ValueError, match=f"config.json: it lacks {name}"):
            CheckpointFiles.read(checkpoint)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", NO_OBJECTS.values(), ids=NO_OBJECTS.keys())
def test_an_invalid_file_is_named(checkpoint: Path, name: str, content: bytes) -> None:
    """Whatever else it is; a git-lfs pointer with what to do about it."""
    read = FILES[name][0](checkpoint)
    (checkpoint / name).write_bytes(content)

    with pytest.raises(ValueError, match=Path(name).name) as caught:
        read()

    assert ("git lfs pull" in str(caught.value)) == (content == LFS_POINTER)


@pytest.mark.parametrize("part", ["probability", "adaptive_depth"])
def test_every_odd_number_of_a_calibration_is_refused_by_its_name(
    tmp_path: Path, part: str
) -> None:
    """Probabilities and depths are computed with them, call after call."""
    rule = AdaptiveDepthRule(
        first_count=4,
        further_count=4,
        intercept=0.5,
        best_logit_weight=0.5,
        margin_weight=0.5,
        similarity_gap_weight=0.5,
        log_rank_weight=0.5,
        stop_chance=0.5,
    )
    path = tmp_path / "calibration.json"
    write_calibrations(path, [Calibration("a", ProbabilityCalibration(1.5, 0.5), rule)])
    said = json.loads(path.read_text())
    assert len(read_calibrations(path)) == 1
    for name in said["calibrations"][0][part]:
        for value in ("384", None, 10**400):
            spoilt = json.loads(json.dumps(said))
            spoilt["calibrations"][0][part][name] = value
            path.write_text(json.dumps(spoilt))
            with pytest.raises(ValueError, match="is not a calibration of this version"):
                read_calibrations(path)


@pytest.mark.parametrize("content", ["[]", '{"recipe": []}'])
def test_invalid_training_notes_are_named(checkpoint: Path, content: str) -> None:
    """Recipes are read from them."""
    (checkpoint / "training.json").write_text(content)

    with pytest.raises(ValueError, match=r"training\.json is damaged"):
        load_checkpoint(checkpoint)


def test_no_room_is_made_for_weights_that_are_not_there(checkpoint: Path) -> None:
    """However large a model config.json tells of: of 65,536 wide it would be 400 GB."""
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"width": 65_536}))

    with pytest.raises(ValueError, match=r"the weights do not fit config\.json: .* at least"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_numbers_are_not_loaded(checkpoint: Path, value: float) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["joint_encoder.pooler.bias"][0] = value
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
