"""Reads a checkpoint's small files, for callers that do not need its weights.

Separate from checkpoint.py, because loading weights imports torch, which takes seconds.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, Self

from tokenizers import Tokenizer

from tandem.model_io.texts.special_tokens import special_tokens
from tandem.model_io.texts.tokenizer_file import check_tokenizer, read_tokenizer_file
from tandem.modeling.config import JointConfig
from tandem.platform.files.json_object import check_file, read_object

WEIGHTS, CONFIG, TOKENIZER, TRAINING = (
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "training.json",
)
_FOREIGN_FORMATS: Final = {
    ".gguf": "in GGUF, llama.cpp's format, which is not read here; take the same model's folder "
    "with model.safetensors, or serve it elsewhere as a remote reranker (docs/remote-reranker.md)",
    ".onnx": "in ONNX, which is not read here; take the same model's folder with model.safetensors",
}
# Of open_clip and sentence-transformers.
_OTHER_FORMATS: Final = ("open_clip_config.json", "modules.json")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """Identifies a checkpoint by shape, tokenizer and digest of its weights."""

    config: JointConfig
    tokenizer: Tokenizer
    weights_sha256: str
    zoo: Mapping[str, Any] | None = None
    """Which network of the zoo it is, for one of those (tandem/lab/zoo)."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the folder.

        Raises ValueError naming the folder if a file is missing or damaged.
        """
        if _is_published(folder):
            raise ValueError(
                f"{folder} is a published model, and not a checkpoint of tandem train: export it "
                f"with tandem models add {folder} --model-repository FOLDER, and use that folder"
            )
        missing = [name for name in (WEIGHTS, CONFIG, TOKENIZER) if not (folder / name).is_file()]
        if missing:
            raise ValueError(f"{folder} is not a checkpoint: {_what_it_is(folder, missing)}")
        reading = ""
        try:
            check_file(folder / WEIGHTS)
            fields = read_object(folder / CONFIG)
            zoo = fields.pop("zoo", None)
            reading = f"{CONFIG}: "
            config = JointConfig.of_fields(fields)
            reading = f"{TOKENIZER}: "
            tokenizer = read_tokenizer_file(folder / TOKENIZER)
            special_tokens(tokenizer)
            check_tokenizer(tokenizer, config.vocabulary_size)
        except ValueError as error:
            raise ValueError(
                f"{folder} is not a checkpoint of this version: {reading}{error}"
            ) from error
        with (folder / WEIGHTS).open("rb") as file:
            return cls(config, tokenizer, file_digest(file, "sha256").hexdigest(), zoo)


def _what_it_is(folder: Path, missing: Sequence[str]) -> str:
    """Returns what is there instead of a checkpoint, and what to do."""
    if not folder.exists():
        return "there is no such folder"
    files = [folder] if folder.is_file() else sorted(folder.iterdir())
    for path in files:
        if path.suffix in _FOREIGN_FORMATS:
            return f"{path.name} is {_FOREIGN_FORMATS[path.suffix]}"
        if path.name.startswith("open_clip_"):
            return (
                f"{path.name} has weights of open_clip alone: put the model's "
                "open_clip_config.json and tokenizer next to it, and give the folder"
            )
    if folder.is_file():
        return "it is a file; give the folder that it lies in"
    return f"it lacks {', '.join(missing)}"


def _is_published(folder: Path) -> bool:
    """Returns whether config.json, or a file of another format, is that of a hub's model."""
    if any((folder / name).is_file() for name in _OTHER_FORMATS):
        return True
    with suppress(ValueError):
        fields = read_object(folder / CONFIG)
        return "model_type" in fields and "vocabulary_size" not in fields
    return False
