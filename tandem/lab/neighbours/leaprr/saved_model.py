"""Writes trained networks to one file, and reads them back.

The configuration is in the file's metadata, so that weights of one are never read by another.
"""

import json
from dataclasses import asdict
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from tandem.lab.neighbours.leaprr.config import LeaprrConfig
from tandem.lab.neighbours.leaprr.network import GraphNetwork
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel
from tandem.modeling.stored_weights import stored_weights, weight_faults, weights_like
from tandem.platform.files.json_object import FileInvalid, from_fields, object_of
from tandem.platform.files.tensor_file import failures_named

_CONFIG = "leaprr_config"


def save_leaprr(path: Path, model: LeaprrModel) -> None:
    """Writes both networks as safetensors."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    with failures_named(path):
        save_file(_weights(model), unfinished, {_CONFIG: json.dumps(asdict(model.config))})
    unfinished.replace(path)


def load_leaprr(path: Path) -> LeaprrModel:
    """Reads a file of save_leaprr.

    Raises FileInvalid naming the file if it is damaged, or holds something else, and naming a seed
    where its folder has a training of several.
    """
    if not path.exists() and (seeds := sorted(path.parent.glob(f"seed_*/{path.name}"))):
        raise FileInvalid(
            f"{path.parent} has the networks of several seeds; name one of them: {seeds[0].parent}"
        )
    stored = stored_weights(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
    if _CONFIG not in metadata:
        raise FileInvalid(f"{path} has no LeaPRR networks")
    try:
        model = LeaprrModel.untrained(
            from_fields(LeaprrConfig, object_of(metadata[_CONFIG], "its configuration")), seed=0
        )
    except (TypeError, ValueError) as error:
        raise FileInvalid(f"{path} is of another version of LeaPRR: {error}") from error
    if faults := weight_faults(stored, weights_like(_weights(model))):
        raise FileInvalid(f"{path} does not fit its configuration: {'; '.join(faults)}")
    weights = load_file(path)
    for prefix, network in _networks(model).items():
        names = [name for name in weights if name.startswith(prefix)]
        network.load_state_dict({name.removeprefix(prefix): weights[name] for name in names})
    return model


def _weights(model: LeaprrModel) -> dict[str, Tensor]:
    return {
        prefix + name: tensor.contiguous()
        for prefix, network in _networks(model).items()
        for name, tensor in network.state_dict().items()
    }


def _networks(model: LeaprrModel) -> dict[str, GraphNetwork]:
    return {"image_queries.": model.image_queries, "text_queries.": model.text_queries}
