"""A checkpoint: a folder with weights, shape, tokenizer, and what made them."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tandem.modeling.config import JointConfig
from tandem.modeling.joint_model import JointModel

_WEIGHTS, _CONFIG, _TOKENIZER, _TRAINING = (
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "training.json",
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trained model with its tokenizer, ready to run, in float32."""

    model: JointModel
    tokenizer: Tokenizer
    training: dict[str, Any]
    """The recipe, the scores and the versions that made it."""
    weights_sha256: str


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
    save_file(weights, folder / _WEIGHTS)
    # safetensors keeps it to its owner, and services run as another user than trains.
    (folder / _WEIGHTS).chmod(0o644)
    _write_json(folder / _CONFIG, model.config.to_dict())
    tokenizer.save(str(folder / _TOKENIZER))
    _write_json(folder / _TRAINING, training)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Returns the checkpoint in evaluation mode.

    Raises ValueError naming the folder if a file is missing or damaged, or the weights do not fit
    the shape.
    """
    missing = [name for name in (_WEIGHTS, _CONFIG, _TOKENIZER) if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} is no checkpoint: it lacks {', '.join(missing)}")
    try:
        model = JointModel(JointConfig(**json.loads((folder / _CONFIG).read_text())))
        weights = load_file(folder / _WEIGHTS)
    except (SafetensorError, TypeError, ValueError) as error:
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
    training_file = folder / _TRAINING
    return Checkpoint(
        model.eval(),
        Tokenizer.from_file(str(folder / _TOKENIZER)),
        json.loads(training_file.read_text()) if training_file.is_file() else {},
        sha256((folder / _WEIGHTS).read_bytes()).hexdigest(),
    )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
