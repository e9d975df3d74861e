"""Finds and reads the files of a published checkpoint, without running code from them.

transformers is needed only to download by name and to read older tokenizer files of RoBERTa and
XLM-R.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from torch import Tensor

from tandem.model_io.texts.special_tokens import special_tokens
from tandem.model_io.texts.tokenizer_file import check_tokenizer, read_tokenizer_file
from tandem.modeling.published.pickled_tensors import (
    PickleRefused,
    is_plain,
    read_pickled_tensors,
)
from tandem.modeling.stored_weights import (
    StoredWeight,
    not_finite,
    stored_weights,
    weights_like,
)
from tandem.platform.files.json_object import check_file, read_object

Weight = TypeVar("Weight")

CONFIG = "config.json"
MODULES = "modules.json"
OPEN_CLIP_CONFIG = "open_clip_config.json"
OPEN_CLIP_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
_VOCABULARY = "vocab.txt"
_WEIGHTS = "model.safetensors"
_PICKLED = "pytorch_model.bin"
WEIGHT_NAMES = (_WEIGHTS, _PICKLED)
_ADAPTERS = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_PIECES = "sentencepiece.bpe.model"
SAVE_ONCE = (
    "write its tokenizer.json once with transformers: "
    "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
)
# A model may pad its vocabulary to a round number, but not with most of its rows.
_LEAST_SHARE = 3
# Under which training loops save weights, next to other things.
_WEIGHT_KEYS = ("state_dict", "model", "model_state_dict", "module")
# Put before every name by DataParallel and torch.compile.
_WRAPPERS = ("module.", "_orig_mod.")
_SMALL_FILES = ("*.json", "vocab.txt", "merges.txt", "README.md")
# A model, or its first module and the layers after it.
_SAFETENSORS = ("model.safetensors", "model-*.safetensors", "[0-9]_*/*.safetensors")
# Only if a repository has none of the others; a layer may still be pickled.
_PICKLES = ("pytorch_model.bin", "pytorch_model-*.bin", "0_*/pytorch_model.bin")
_PICKLED_LAYERS = ("[1-9]_*/pytorch_model.bin",)


class PublishedCheckpointInvalid(ValueError):
    """The folder or name is not a published checkpoint that can be used."""


def published_folder(name_or_folder: str, revision: str | None = None) -> Path:
    """Returns the folder of that path, or that with the hub's files of that name.

    A revision is a commit, a tag or a branch. With HF_HUB_OFFLINE only files that were downloaded
    before are used. Raises PublishedCheckpointInvalid where neither is there.
    """
    folder = Path(name_or_folder)
    if folder.is_dir():
        return folder
    # The small files say which weights are needed: a repository may have several formats of them.
    folder = hub_snapshot(name_or_folder, _SMALL_FILES, revision)
    choices: list[Sequence[str]] = []
    if (folder / CONFIG).is_file() or (folder / MODULES).is_file():
        choices += [(*_SAFETENSORS, *_PICKLED_LAYERS), (*_PICKLES, *_PICKLED_LAYERS)]
    if (folder / OPEN_CLIP_CONFIG).is_file() or not choices:
        choices += [(name,) for name in OPEN_CLIP_WEIGHTS]
    for wanted in choices:
        folder = hub_snapshot(name_or_folder, (*_SMALL_FILES, *wanted), revision)
        if any(next(folder.glob(pattern), None) for pattern in (*wanted[:2], "0_*/model*")):
            break
    return folder


def hub_snapshot(name: str, patterns: Sequence[str], revision: str | None = None) -> Path:
    """Returns the folder with a hub repository's files of these patterns, downloaded if need be.

    Raises PublishedCheckpointInvalid where the hub has no such repository or revision, and where
    it cannot be reached and its copy here is incomplete.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )
    except ImportError as error:
        raise PublishedCheckpointInvalid(
            f"{name} is not a folder, and to download it by that name transformers is "
            "needed: pip install 'tandem-search[models]'"
        ) from error
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise PublishedCheckpointInvalid(
            f"{name} is neither a folder nor a checkpoint that the hub gives; correct the name, or "
            f"without a way to the hub give the folder of its files: {' '.join(str(error).split())}"
        ) from error


def weight_files(folder: Path, names: Sequence[str] = WEIGHT_NAMES) -> list[Path]:
    """Returns the weight files of the first of `names` that is there, sorted.

    By default safetensors, or else torch's pickles. Raises ValueError where they are missing or lie
    outside the folder, and where an adapter is next to them.
    """
    refuse_adapter(folder)
    for name in names:
        if (files := _listed(folder, name)) is not None:
            for path in files:
                if not path.exists():
                    raise PublishedCheckpointInvalid(
                        f"{path} is missing, and {name}.index.json names it; copy or download it"
                    )
                check_file(path)
            return files
    raise PublishedCheckpointInvalid(
        f"{folder} has no {', nor '.join(names)}; copy the weights of the same model into it, or "
        "save it once with save_pretrained"
    )


def refuse_adapter(folder: Path) -> None:
    """Raises PublishedCheckpointInvalid for an adapter, alone or next to the weights it changes.

    transformers applies one next to them; without it every embedding would be another model's.
    """
    if found := [name for name in _ADAPTERS if (folder / name).exists()]:
        raise PublishedCheckpointInvalid(
            f"{folder} has {found[0]}: it is an adapter, or has one; merge it into its model "
            "(merge_and_unload), save that with save_pretrained, and take that folder"
        )


def declared_weights(folder: Path, names: Sequence[str] = WEIGHT_NAMES) -> dict[str, StoredWeight]:
    """Returns shape and type of all weights by their published names.

    Reads only the headers of safetensors files, so that no memory is allocated for weights that do
    not fit. Raises what `read_weights` raises.
    """
    declared: dict[str, StoredWeight] = {}
    for path in weight_files(folder, names):
        is_whole = path.suffix == ".safetensors"
        declared |= stored_weights(path) if is_whole else weights_like(_unpickled(path))
    return _without_wrapper(declared)


def read_weights(folder: Path, names: Sequence[str] = WEIGHT_NAMES) -> dict[str, Tensor]:
    """Returns all weights by their published names, in float32.

    Raises what `weight_files` raises, and ValueError for a damaged file, a pickle of more than
    tensors, and a weight that is NaN or infinite.
    """
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder, names):
        part = load_file(path) if path.suffix == ".safetensors" else _unpickled(path)
        if names := not_finite(part):
            raise PublishedCheckpointInvalid(
                f"{path}: weights are NaN or infinite: {names}; download it again, or start from "
                "another"
            )
        weights |= part
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in _without_wrapper(weights).items()
    }


def read_tokenizer(folder: Path, vocabulary_size: int) -> Tokenizer:
    """Returns the tokenizer without the padding and truncation that its file may set.

    all-MiniLM's would pad every caption to 128 tokens. Raises ValueError for a missing tokenizer,
    for missing special tokens, and for the tokenizer of another model, by its ids.
    """
    tokenizer, _ = stored_tokenizer(folder)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    special_tokens(tokenizer)
    check_vocabulary(tokenizer, vocabulary_size)
    return tokenizer


def stored_tokenizer(folder: Path) -> tuple[Tokenizer, Sequence[str]]:
    """Returns the tokenizer as its files say, and their names; raises ValueError without one."""
    readers: dict[tuple[str, ...], Callable[[], Tokenizer]] = {
        (TOKENIZER,): lambda: read_tokenizer_file(folder / TOKENIZER),
        (_VOCABULARY,): lambda: _word_piece_tokenizer(folder),
        ("vocab.json", "merges.txt"): lambda: _older_tokenizer(folder),
        (_PIECES,): lambda: _older_tokenizer(folder),
    }
    for names, read in readers.items():
        if all((folder / name).exists() for name in names):
            return read(), names
    raise PublishedCheckpointInvalid(
        f"{folder} has no tokenizer, neither {TOKENIZER} nor {_VOCABULARY}; copy that of the same "
        f"model into it, or {SAVE_ONCE}"
    )


def check_vocabulary(tokenizer: Tokenizer, vocabulary_size: int) -> None:
    """Raises ValueError for the tokenizer of another model, by its ids and their number."""
    check_tokenizer(tokenizer, vocabulary_size)
    token_count = tokenizer.get_vocab_size()
    if token_count * _LEAST_SHARE < vocabulary_size:
        raise ValueError(
            f"the tokenizer has {token_count:,} tokens and {CONFIG} {vocabulary_size:,}; "
            "they are not of one checkpoint; take all files of one"
        )


def _word_piece_tokenizer(folder: Path) -> Tokenizer:
    """Returns the tokenizer of BERT's vocab.txt, lower-casing unless its config disables it."""
    path, config = folder / _VOCABULARY, folder / TOKENIZER_CONFIG
    check_file(path)
    # The library's own reading of the file also cuts white space off, and str.splitlines splits at
    # U+2028 and U+0085, which are tokens of multilingual vocabularies.
    lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    fields = read_object(config) if config.exists() else {}
    made = BertWordPieceTokenizer(
        vocabulary,
        handle_chinese_chars=fields.get("tokenize_chinese_chars", True),
        strip_accents=fields.get("strip_accents"),
        lowercase=fields.get("do_lower_case", True),
    )
    tokenizer: Tokenizer = made._tokenizer  # noqa: SLF001  it has no public name
    return tokenizer


def _older_tokenizer(folder: Path) -> Tokenizer:
    """Returns the tokenizer of a folder that has only older files, as transformers reads them."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise PublishedCheckpointInvalid(
            f"{folder} has no {TOKENIZER}, and for its older files transformers is needed: "
            "pip install 'tandem-search[models]'"
        ) from error
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer
    except Exception as error:  # its steps may raise anything
        why = " ".join(str(error).split())
        raise PublishedCheckpointInvalid(
            f"{folder} has no tokenizer that can be read ({why}); copy the {TOKENIZER} of the "
            "same model into it"
        ) from error


def _listed(folder: Path, name: str) -> list[Path] | None:
    """Returns the file of that name, or the files of its index; None where both are missing."""
    if (folder / name).exists():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.exists():
        return None
    parts: list[Any] = list(read_object(index)["weight_map"].values())
    suffix = Path(name).suffix
    for part in parts:
        is_name = isinstance(part, str) and "\0" not in part and Path(part).name == part
        if not is_name or Path(part).suffix != suffix:
            raise PublishedCheckpointInvalid(f"{index} names {part!r}, no {suffix} next to it")
    return sorted(folder / part for part in set(parts))


def _unpickled(path: Path) -> dict[str, Tensor]:
    """Returns the weights of a pickle, which is all that many a published BERT has."""
    try:
        weights = read_pickled_tensors(path)
    except PickleRefused as error:
        raise PublishedCheckpointInvalid(
            f"{error}; copy or download it again, or take {_WEIGHTS} in its place"
        ) from error
    weights = _of_training(weights)
    if not _is_weights(weights):
        raise PublishedCheckpointInvalid(
            f"{path} holds no weights by name, nor under one of {', '.join(_WEIGHT_KEYS)}; save "
            "model.state_dict() with torch.save"
        )
    for name, tensor in weights.items():
        if not is_plain(tensor):
            raise PublishedCheckpointInvalid(f"{path}: {name} is not a plain tensor of numbers")
    return dict(weights)


def _of_training(stored: Any) -> Any:  # noqa: ANN401  whatever was saved
    """Returns the weights in what a training loop saves: with its step, or its optimiser."""
    if not isinstance(stored, dict) or _is_weights(stored):
        return stored
    found = [stored[key] for key in _WEIGHT_KEYS if _is_weights(stored.get(key))]
    return found[0] if len(found) == 1 else None


def _is_weights(stored: object) -> bool:
    return (
        isinstance(stored, dict)
        and bool(stored)
        and all(isinstance(name, str) and isinstance(each, Tensor) for name, each in stored.items())
    )


def _without_wrapper(weights: dict[str, Weight]) -> dict[str, Weight]:
    """Returns the weights without the prefixes that wrappers of a model put before every name."""
    for prefix in (*_WRAPPERS, *_WRAPPERS):
        if all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): each for name, each in weights.items()}
    return weights
