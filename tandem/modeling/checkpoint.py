"""A checkpoint: a folder with weights, shape, tokenizer, and what made them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tandem.modeling.checkpoint_files import (
    CONFIG,
    TOKENIZER,
    TRAINING,
    WEIGHTS,
    CheckpointFiles,
)
from tandem.modeling.joint_model import JointModel


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trained model with its tokenizer, ready to run, in float32."""

    model: JointModel
    files: CheckpointFiles
    training: dict[str, Any]
    """The recipe, the scores and the versions that made it."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        return self.files.tokenizer

    @property
    def weights_sha256(self) -> str:
        """Of the file of weights."""
        return self.files.weights_sha256


def save_checkpoint(
    folder: Path, model: JointModel, tokenizer: Tokenizer, training: dict[str, Any]
) -> None:
    """Writes a checkpoint; weights as float16, which halves the file.

    The rounding is part of the checkpoint: whoever loads it, trains on or exports it sees the
    rounded weights, so there is one model and not two.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.half().contiguous() if tensor.is_floating_point() else tensor
        for name, tensor in model.state_dict().items()
    }
    save_file(weights, folder / WEIGHTS)
    # safetensors keeps it to its owner, and services run as another user than trains.
    (folder / WEIGHTS).chmod(0o644)
    _write_json(folder / CONFIG, model.config.to_dict())
    tokenizer.save(str(folder / TOKENIZER))
    _write_json(folder / TRAINING, training)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Returns the checkpoint in evaluation mode.

    Raises ValueError naming the folder if a file is missing or damaged, or the weights do not fit
    the shape.
    """
    files = CheckpointFiles.read(folder)
    model = JointModel(files.config)
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"{folder} is no checkpoint of this version: {error}") from error
    try:
        model.load_state_dict(
            {
                name: tensor.float() if tensor.dtype is torch.float16 else tensor
                for name, tensor in weights.items()
            }
        )
    except RuntimeError as error:
        raise ValueError(f"{folder}: the weights do not fit config.json: {error}") from error
    return Checkpoint(model.eval(), files, _training(folder))


def _training(folder: Path) -> dict[str, Any]:
    path = folder / TRAINING
    if not path.is_file():
        return {}
    try:
        notes: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged: {error}; restore it, or remove it: the model needs none"
        ) from error
    return notes


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
