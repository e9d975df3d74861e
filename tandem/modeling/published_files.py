"""The files of a published checkpoint: found, refused where reading them could run code, and read.

The library that wrote them, transformers, is needed only to download by name and to read a
tokenizer from files older than tokenizer.json.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from tandem.model_io.special_tokens import special_tokens

CONFIG = "config.json"
_WEIGHTS, _SHARDS, _TOKENIZER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
)
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth")
_DOWNLOADED = (CONFIG, "*.safetensors", _SHARDS, _TOKENIZER, "vocab.txt", "tokenizer_config.json")


class PublishedCheckpointInvalid(ValueError):
    """What was given is no checkpoint that an encoder can start from."""


def published_folder(name_or_folder: str) -> Path:
    """Returns the folder, or the one that the hub's checkpoint of that name is downloaded to.

    Raises PublishedCheckpointInvalid for what is neither.
    """
    folder = Path(name_or_folder)
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )
    except ImportError as error:
        raise PublishedCheckpointInvalid(
            f"{name_or_folder} is no folder, and to download it by that name transformers is "
            "needed: pip install 'tandem-search[pretrained]'"
        ) from error
    try:
        return Path(snapshot_download(name_or_folder, allow_patterns=list(_DOWNLOADED)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise PublishedCheckpointInvalid(
            f"{name_or_folder} is neither a folder nor a checkpoint that the hub gives: {error}"
        ) from error


def read_fields(path: Path) -> dict[str, Any]:
    """Returns a JSON file's object; raises PublishedCheckpointInvalid naming the file."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PublishedCheckpointInvalid(f"{path} cannot be read: {error}") from error
    return content


def weight_files(folder: Path) -> list[Path]:
    """Returns the files that the weights are in, by name.

    Raises PublishedCheckpointInvalid where they are a pickle, are not there, or lie elsewhere.
    """
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    if not (folder / _SHARDS).is_file():
        raise PublishedCheckpointInvalid(_why_no_weights(folder))
    names = set(read_fields(folder / _SHARDS).get("weight_map", {}).values())
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise PublishedCheckpointInvalid(f"{folder / _SHARDS} names {name!r}, no safetensors")
    return sorted(folder / name for name in names)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Returns all weights by their published names, in float32; errors as `weight_files`."""
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            weights |= load_file(path)
        except (OSError, SafetensorError) as error:
            raise PublishedCheckpointInvalid(f"{path} cannot be read: {error}") from error
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }


def read_tokenizer(folder: Path) -> Tokenizer:
    """Returns the tokenizer without the padding and truncation that its file may ask for.

    all-MiniLM's asks for 128 tokens a text, which would be 128 tokens a caption to compute.
    Raises PublishedCheckpointInvalid for none, and for one without the special tokens we need.
    """
    path = folder / _TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path)) if path.is_file() else _older(folder)
    except PublishedCheckpointInvalid:
        raise
    except Exception as error:  # the library raises the bare class
        raise PublishedCheckpointInvalid(f"{path} is no tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    try:
        special_tokens(tokenizer)
    except ValueError as error:
        raise PublishedCheckpointInvalid(f"{folder}: {error}") from error
    return tokenizer


def _why_no_weights(folder: Path) -> str:
    pickles = [name for name in _PICKLES if (folder / name).is_file()]
    if not pickles:
        return f"{folder} has no {_WEIGHTS}"
    return (
        f"{folder} has its weights as a pickle ({pickles[0]}), which can run code of whoever wrote "
        f"it, and is not opened; {_WEIGHTS} is what is needed"
    )


def _older(folder: Path) -> Tokenizer:
    """Returns the tokenizer of a folder that has a vocabulary alone."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise PublishedCheckpointInvalid(
            f"{folder} has no {_TOKENIZER}, and for its older files transformers is needed: "
            "pip install 'tandem-search[pretrained]'"
        ) from error
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer
