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
from tandem.modeling.pickled_tensors import PickleRefused, read_pickled_tensors

CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_WEIGHTS = "model.safetensors"
_PICKLED = "pytorch_model.bin"
_DOWNLOADED = (
    CONFIG,
    "*.safetensors",
    f"{_WEIGHTS}.index.json",
    _TOKENIZER,
    "vocab.txt",
    "tokenizer_config.json",
)
_DOWNLOADED_WITHOUT_SAFETENSORS = ("pytorch_model*.bin", f"{_PICKLED}.index.json")


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
    wanted = list(_DOWNLOADED)
    try:
        folder = Path(snapshot_download(name_or_folder, allow_patterns=wanted))
        if _listed(folder, _WEIGHTS) is None:
            wanted += _DOWNLOADED_WITHOUT_SAFETENSORS
            folder = Path(snapshot_download(name_or_folder, allow_patterns=wanted))
        return folder
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
    """Returns the files that the weights are in, by name: safetensors, or else torch's pickles.

    Raises PublishedCheckpointInvalid where they are not there, or lie elsewhere.
    """
    for name in (_WEIGHTS, _PICKLED):
        if (files := _listed(folder, name)) is not None:
            return files
    raise PublishedCheckpointInvalid(f"{folder} has no {_WEIGHTS}, nor {_PICKLED}")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Returns all weights by their published names, in float32; errors as `weight_files`.

    And for a file that is damaged, or a pickle of more than tensors.
    """
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            weights |= load_file(path) if path.suffix == ".safetensors" else _unpickled(path)
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


def _listed(folder: Path, name: str) -> list[Path] | None:
    """Returns the file of that name, or those of its index; None where there is neither."""
    if (folder / name).is_file():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.is_file():
        return None
    parts = set(read_fields(index).get("weight_map", {}).values())
    suffix = Path(name).suffix
    for part in parts:
        if Path(part).name != part or Path(part).suffix != suffix:
            raise PublishedCheckpointInvalid(f"{index} names {part!r}, no {suffix} beside it")
    return sorted(folder / part for part in parts)


def _unpickled(path: Path) -> dict[str, Tensor]:
    """Returns the weights of a pickle: many a published BERT has no other file."""
    try:
        weights = read_pickled_tensors(path)
    except PickleRefused as error:
        raise PublishedCheckpointInvalid(f"{error}; {_WEIGHTS} is what is needed") from error
    if not isinstance(weights, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in weights.items()
    ):
        raise PublishedCheckpointInvalid(f"{path} is no list of weights by name")
    return dict(weights)


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
