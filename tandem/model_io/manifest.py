"""What an exported model is: written by the exporter, read by whoever serves or stores with it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"
IMAGE_BACKBONE = "image_backbone"
JOINT_ENCODER = "joint_encoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One model, as two files that Triton loads, and how to talk to it."""

    format_version: int
    family: str
    fingerprint: str
    """Equal where embeddings and tokens are comparable."""
    precision: str
    embedding_dim: int
    token_width: int
    image_token_count: int
    image_size: int
    """Pixels on a side."""
    max_text_tokens: int
    """[CLS] and [SEP] included."""
    text_length_buckets: tuple[int, ...]
    """Lengths that texts are padded to, ascending, so that requests of different users batch."""
    vocabulary_size: int
    """Token ids are below it."""
    cls_id: int
    sep_id: int
    pad_id: int
    models: Mapping[str, str]
    """sha256 of each model's file, by model name."""
    tokenizer_sha256: str
    checkpoint: Mapping[str, Any]
    """What it was exported from."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns the manifest; raises OSError, or ValueError naming the file and what is wrong."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["format_version"] != FORMAT_VERSION:
                raise ValueError(f"format {fields['format_version']} instead of {FORMAT_VERSION}")
            fields["text_length_buckets"] = tuple(fields["text_length_buckets"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is no manifest of this version: {error!r}") from error

    def write(self, path: Path) -> None:
        """Writes the manifest."""
        path.write_text(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n", encoding="utf-8")

    def verify(self, repository: Path) -> None:
        """Raises ValueError unless the repository's files are those the manifest tells of."""
        for name, digest in self.models.items():
            _check_there(config_file(repository, name))  # operators may change it
            _check_digest(model_file(repository, name), digest)
        self.verify_tokenizer(repository)

    def verify_tokenizer(self, repository: Path) -> None:
        """Raises ValueError unless the tokenizer is the model's own."""
        _check_digest(tokenizer_file(repository), self.tokenizer_sha256)


def read_manifest(repository: Path) -> Manifest:
    """Returns the manifest of a model repository; errors as Manifest.read."""
    return Manifest.read(repository / JOINT_ENCODER / MANIFEST_NAME)


def model_file(repository: Path, name: str) -> Path:
    """Returns where Triton expects a model's TorchScript."""
    return repository / name / "1" / "model.pt"


def config_file(repository: Path, name: str) -> Path:
    """Returns where Triton expects what it is told of a model."""
    return repository / name / "config.pbtxt"


def tokenizer_file(repository: Path) -> Path:
    """Returns where the tokenizer lies."""
    return repository / JOINT_ENCODER / TOKENIZER_NAME


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is missing; export the model again")


def _check_digest(path: Path, digest: str) -> None:
    _check_there(path)
    if sha256(path.read_bytes()).hexdigest() != digest:
        raise ValueError(f"{path} is not the file its manifest tells of; export again")
