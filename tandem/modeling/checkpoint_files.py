"""A checkpoint's folder and what its small files say, for whoever needs no weights.

Apart from `checkpoint`, because loading weights needs torch and its seconds.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from tandem.modeling.config import JointConfig

WEIGHTS, CONFIG, TOKENIZER, TRAINING = (
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "training.json",
)


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """What tells one checkpoint from another."""

    config: JointConfig
    tokenizer: Tokenizer
    weights_sha256: str

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Returns what the folder holds.

        Raises ValueError naming the folder if a file is missing or damaged.
        """
        missing = [name for name in (WEIGHTS, CONFIG, TOKENIZER) if not (folder / name).is_file()]
        if missing:
            raise ValueError(f"{folder} is no checkpoint: it lacks {', '.join(missing)}")
        try:
            config = JointConfig(**json.loads((folder / CONFIG).read_text(encoding="utf-8")))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder} is no checkpoint of this version: {error}") from error
        try:
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # the library raises the bare class
            raise ValueError(
                f"{folder} is no checkpoint of this version: {TOKENIZER}: {error}"
            ) from error
        return cls(config, tokenizer, sha256((folder / WEIGHTS).read_bytes()).hexdigest())
