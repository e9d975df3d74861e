"""Combines two checkpoints into one: the BE of the first, the CE of the second (Sep+Coop)."""

from dataclasses import asdict, replace
from functools import reduce
from pathlib import Path

import torch

from tandem.modeling.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tandem.modeling.checkpoint_files import WEIGHTS
from tandem.modeling.joint_model import JointModel
from tandem.modeling.trained_pictures import TrainedPictures


def combine(bi_encoder: Path, cross_encoder: Path, folder: Path) -> Checkpoint:
    """Writes and returns a checkpoint with the BE of one and the CE of the other.

    Both must read the same image tokens and word pieces, because an item is stored once. Raises
    ValueError, having written nothing, for a target folder that holds a checkpoint, for a source
    that is not a checkpoint or is combined already, and for two that differ in shape, tokenizer or
    image backbone.
    """
    if (folder / WEIGHTS).exists():
        raise ValueError(f"{folder} holds a checkpoint already; name another folder")
    one, other = load_checkpoint(bi_encoder), load_checkpoint(cross_encoder)
    _check_fit(one, other, f"{bi_encoder} and {cross_encoder}")
    model = JointModel(replace(one.model.config, has_two_encoders=True))
    parts = {
        "image_backbone": one.model.image_backbone,
        "joint_encoder.bi_encoder": one.model.joint_encoder,
        "joint_encoder.cross_encoder": other.model.joint_encoder,
    }
    model.load_state_dict(
        {
            f"{name}.{weight}": value
            for name, part in parts.items()
            for weight, value in part.state_dict().items()
        }
    )
    made_of = {
        role: {"weights_sha256": each.weights_sha256, **each.training}
        for role, each in (("bi_encoder", one), ("cross_encoder", other))
    }
    pictures = [each.trained_pictures for each in (one, other) if each.trained_pictures is not None]
    save_checkpoint(
        folder,
        model,
        one.tokenizer,
        {"combined_of": made_of},
        trained_pictures=reduce(TrainedPictures.joined, pictures) if pictures else None,
    )
    return load_checkpoint(folder)


def _check_fit(one: Checkpoint, other: Checkpoint, both: str) -> None:
    ours, theirs = asdict(one.model.config), asdict(other.model.config)
    for name, value in ours.items():
        if value != theirs[name]:
            raise ValueError(f"{both} have another {name}: {value} and {theirs[name]}")
    if one.model.config.has_two_encoders:
        raise ValueError(f"{both} are combined already; name the two that they were made of")
    if one.tokenizer.to_str() != other.tokenizer.to_str():
        raise ValueError(f"{both} have another tokenizer; train the CE with --init BE")
    weights, their_weights = (each.model.image_backbone.state_dict() for each in (one, other))
    if not all(torch.equal(value, their_weights[name]) for name, value in weights.items()):
        raise ValueError(
            f"{both} have another image backbone, and an item's image tokens are stored once; "
            "train the CE with --init BE"
        )
