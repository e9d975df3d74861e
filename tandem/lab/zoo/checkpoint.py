"""Saves and loads a model of the zoo, in a folder like that of any checkpoint.

config.json describes what the model reads, as that of a joint model does, and has one field more:
`zoo`, which names the network.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.zoo_model import ZooModel
from tandem.modeling.checkpoint import (
    CheckpointDetails,
    check_weights_fit,
    declared_checkpoint_weights,
    load_weights,
    training_notes,
    write_checkpoint,
)
from tandem.modeling.checkpoint_files import CONFIG, CheckpointFiles
from tandem.modeling.stored_weights import weight_faults, weights_like
from tandem.modeling.trained_pictures import TrainedPictures
from tandem.platform.files.json_object import read_object


@dataclass(frozen=True, slots=True)
class ZooCheckpoint(CheckpointDetails):
    """Holds a trained model of the zoo with its tokenizer, ready to run, in float32."""

    model: ZooModel


def is_zoo_checkpoint(folder: Path) -> bool:
    """Returns whether a folder's config.json names a network of the zoo."""
    return (folder / CONFIG).is_file() and "zoo" in read_object(folder / CONFIG)


def save_zoo_checkpoint(
    folder: Path,
    model: ZooModel,
    tokenizer: Tokenizer,
    training: dict[str, Any],
    *,
    trained_pictures: TrainedPictures | None = None,
) -> None:
    fields = {**model.config.to_dict(), "zoo": model.zoo.fields()}
    write_checkpoint(folder, model, fields, tokenizer, training, trained_pictures=trained_pictures)


def load_zoo_checkpoint(folder: Path) -> ZooCheckpoint:
    """Returns the checkpoint in evaluation mode; raises ValueError as load_checkpoint does."""
    files = CheckpointFiles.read(folder)
    if files.zoo is None:
        raise ValueError(f"{folder} is not a model of the zoo; tandem train zoo makes one")
    try:
        config = ZooConfig.of_fields(files.config, files.zoo)
    except ValueError as error:
        raise ValueError(
            f"{folder} is not a checkpoint of this version: {CONFIG}: {error}"
        ) from error
    # Without memory for a weight that the file does not have.
    with torch.device("meta"):
        wanted = weights_like(ZooModel(config).state_dict())
    check_weights_fit(folder, weight_faults(declared_checkpoint_weights(folder), wanted))
    model = ZooModel(config)
    load_weights(folder, model)
    pictures = TrainedPictures.read(folder)
    return ZooCheckpoint(files, training_notes(folder), pictures, model.eval())
