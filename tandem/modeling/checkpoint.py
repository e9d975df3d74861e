"""Saves and loads checkpoints: folders with weights, shape, tokenizer, and what made them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

from tandem.modeling.checkpoint_files import (
    CONFIG,
    TOKENIZER,
    TRAINING,
    WEIGHTS,
    CheckpointFiles,
)
from tandem.modeling.joint_model import JointModel
from tandem.modeling.stored_weights import (
    StoredWeight,
    not_finite,
    stored_weights,
    weight_faults,
    weights_like,
)
from tandem.modeling.trained_pictures import FILE_NAME as TRAINED_PICTURES
from tandem.modeling.trained_pictures import TrainedPictures
from tandem.platform.files.json_object import read_object, shown
from tandem.platform.files.tensor_file import failures_named
from tandem.platform.files.whole_file import write_text_whole, write_whole


class WeightsNotFinite(ValueError):
    """A model has weights that are NaN or infinite, and must not become a checkpoint."""


@dataclass(frozen=True, slots=True)
class CheckpointDetails:
    """Holds what a checkpoint's folder has apart from its weights."""

    files: CheckpointFiles
    training: dict[str, Any]
    """The recipe, the scores and the versions that made it."""
    trained_pictures: TrainedPictures | None
    """The pictures that it was trained on; None if they are not recorded."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self.files.tokenizer

    @property
    def weights_sha256(self) -> str:
        return self.files.weights_sha256


@dataclass(frozen=True, slots=True)
class Checkpoint(CheckpointDetails):
    """Holds a trained joint model with its tokenizer, ready to run, in float32."""

    model: JointModel


def save_checkpoint(
    folder: Path,
    model: JointModel,
    tokenizer: Tokenizer,
    training: dict[str, Any],
    *,
    trained_pictures: TrainedPictures | None = None,
) -> None:
    """Writes a checkpoint, each file atomically, with weights in float16 to halve their size.

    The rounding is part of the checkpoint: whatever loads, trains or exports it sees the rounded
    weights. Raises WeightsNotFinite, having written nothing, for a weight that is NaN or infinite,
    or becomes so in float16.
    """
    write_checkpoint(
        folder,
        model,
        model.config.to_dict(),
        tokenizer,
        training,
        trained_pictures=trained_pictures,
    )


def write_checkpoint(
    folder: Path,
    model: nn.Module,
    config: dict[str, Any],
    tokenizer: Tokenizer,
    training: dict[str, Any],
    *,
    trained_pictures: TrainedPictures | None = None,
) -> None:
    """Writes a checkpoint of any model, with `config` as its config.json; as save_checkpoint."""
    weights = {
        name: tensor.half().contiguous() if tensor.is_floating_point() else tensor
        for name, tensor in model.state_dict().items()
    }
    if names := not_finite(weights):
        raise WeightsNotFinite(f"weights are NaN or infinite: {names}; nothing was saved")
    folder.mkdir(parents=True, exist_ok=True)
    small_files = {
        CONFIG: _json(config),
        TOKENIZER: tokenizer.to_str(pretty=True),
    }
    has_pictures = _has_pictures(folder, trained_pictures)
    if not has_pictures or any(_text(folder / name) != text for name, text in small_files.items()):
        # Another model's weights must never lie next to them.
        (folder / WEIGHTS).unlink(missing_ok=True)
    for name, text in small_files.items():
        write_text_whole(folder / name, text)
    # Before the weights: a kill in between must not leave some whose pictures are unknown.
    if trained_pictures is None:
        (folder / TRAINED_PICTURES).unlink(missing_ok=True)  # another model's
    elif not has_pictures:
        write_whole(folder / TRAINED_PICTURES, trained_pictures.write)
    # With its own file mode: safetensors makes it private, and services run as another user.
    with failures_named(folder / WEIGHTS):
        write_whole(folder / WEIGHTS, lambda path: save_file(weights, path))
    write_text_whole(folder / TRAINING, _json(training))


def _has_pictures(folder: Path, pictures: TrainedPictures | None) -> bool:
    """Returns whether the folder records exactly these pictures."""
    try:
        known = TrainedPictures.read(folder)
    except ValueError:  # damaged
        return False
    if known is None or pictures is None:
        return known is pictures
    return np.array_equal(known.digests, pictures.digests)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Returns the checkpoint in evaluation mode.

    Raises ValueError naming the folder if a file is missing or damaged, or if the weights do not
    fit the shape or are not finite. Memory is allocated only for weights that the file has.
    """
    files = CheckpointFiles.read(folder)
    if files.zoo is not None:
        raise ValueError(
            f"{folder} is a model of the zoo ({shown(files.zoo.get('model'))}), which this does "
            "not read; tandem evaluate and tandem models add do"
        )
    stored = declared_checkpoint_weights(folder)
    with torch.device("meta"):
        shape = JointModel(files.config).state_dict()
    check_weights_fit(folder, weight_faults(stored, weights_like(shape)))
    model = JointModel(files.config)
    load_weights(folder, model)
    pictures = TrainedPictures.read(folder)
    return Checkpoint(files, training_notes(folder), pictures, model.eval())


def declared_checkpoint_weights(folder: Path) -> dict[str, StoredWeight]:
    """Returns the weights in the header of a checkpoint's file; errors as load_checkpoint."""
    try:
        return stored_weights(folder / WEIGHTS)
    except ValueError as error:
        raise ValueError(f"{folder} is not a checkpoint of this version: {error}") from error


def check_weights_fit(folder: Path, faults: Sequence[str]) -> None:
    """Raises ValueError where weights do not fit the shape."""
    if faults:
        raise ValueError(f"{folder}: the weights do not fit config.json: {'; '.join(faults)}")


def load_weights(folder: Path, model: nn.Module) -> None:
    """Fills the model with a checkpoint's weights, in float32; raises ValueError for NaN."""
    weights = load_file(folder / WEIGHTS)
    if names := not_finite(weights):
        raise ValueError(
            f"{folder}: weights are NaN or infinite: {names}; restore {WEIGHTS}, or train again"
        )
    model.load_state_dict(
        {
            name: tensor.float() if tensor.is_floating_point() else tensor
            for name, tensor in weights.items()
        }
    )


def training_notes(folder: Path) -> dict[str, Any]:
    """Returns what made a checkpoint, empty where it does not say."""
    path = folder / TRAINING
    if not path.is_file():
        return {}
    try:
        notes = read_object(path)
        if not isinstance(notes.get("recipe", {}), dict):
            raise ValueError(f"recipe is {shown(notes['recipe'])}, not an object")
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged: {error}; restore it, or remove it: the model needs none"
        ) from error
    return notes


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
