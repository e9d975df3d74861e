"""Describes an exported model: the exporter writes the manifest, services read it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from tandem.model_io.json_object import FileInvalid, from_fields, read_object, shown, within
from tandem.model_io.precision import Precision
from tandem.model_io.visible_text import VISIBLE_TEXT_VERSION
from tandem.model_io.whole_file import write_text_whole

FORMAT_VERSION = 2
"""Format 1 had no text_version: texts were read with their invisible characters."""
MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"
IMAGE_BACKBONE = "image_backbone"
JOINT_ENCODER = "joint_encoder"
_SIZES = (
    "embedding_dim",
    "token_width",
    "image_token_count",
    "image_size",
    "max_text_tokens",
    "vocabulary_size",
)
_MAX_SIZE = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Describes one model: the two files that Triton loads, and how to call it."""

    format_version: int
    family: str
    fingerprint: str
    """Equal if embeddings and tokens are comparable."""
    precision: str
    embedding_dim: int
    token_width: int
    image_token_count: int
    image_size: int
    """In pixels per side."""
    max_text_tokens: int
    """Includes [CLS] and [SEP]."""
    text_length_buckets: tuple[int, ...]
    """Ascending lengths to which texts are padded, so that requests of different users batch."""
    vocabulary_size: int
    """Token ids are smaller."""
    cls_id: int
    sep_id: int
    pad_id: int
    text_version: int
    """How texts are normalised before they are split into tokens (visible_text.py)."""
    models: Mapping[str, str]
    """sha256 of each model's file, by model name."""
    tokenizer_sha256: str
    checkpoint: Mapping[str, Any]
    """The checkpoint that was exported."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns the manifest; raises OSError, or ValueError naming the file and what is wrong."""
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; export the model: tandem models add")
        try:
            fields = read_object(path)
        except FileInvalid as error:
            raise ValueError(
                f"{error}; it is no manifest of this version: export the model again"
            ) from error
        try:
            if fields.get("format_version") != FORMAT_VERSION:
                found = shown(fields.get("format_version"))
                raise ValueError(
                    f"format {found} instead of {FORMAT_VERSION}, and another release may read "
                    "texts in another way; export the model again with tandem models add, and "
                    "ingest again what was ingested with it"
                )
            manifest = from_fields(cls, fields)
            manifest.check()
        except ValueError as error:
            raise ValueError(f"{path} is no manifest of this version: {error}") from error
        return manifest

    def check(self) -> None:
        """Raises ValueError unless this release can serve the model."""
        if self.text_version != VISIBLE_TEXT_VERSION:
            raise ValueError(
                f"it reads texts by text_version {self.text_version}, and this release by "
                f"{VISIBLE_TEXT_VERSION}; export the model again with tandem models add, and "
                "ingest again what was ingested with it"
            )
        if self.precision not in list(Precision):
            raise ValueError(f"no precision {shown(self.precision)}")
        for name in _SIZES:
            within(name, getattr(self, name), 1, _MAX_SIZE)
        for name in ("cls_id", "sep_id", "pad_id"):
            within(name, getattr(self, name), 0, self.vocabulary_size - 1)
        buckets = self.text_length_buckets
        if list(buckets) != sorted(set(buckets)) or buckets[-1:] != (self.max_text_tokens,):
            raise ValueError(
                f"text_length_buckets {shown(buckets)} do not ascend to {self.max_text_tokens}"
            )
        within("text_length_buckets", buckets[0], 1, self.max_text_tokens)

    def write(self, path: Path) -> None:
        """Writes the manifest."""
        write_text_whole(path, json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    def verify(self, repository: Path) -> None:
        """Raises ValueError unless the repository's files match the manifest."""
        for name, digest in self.models.items():
            _check_there(config_file(repository, name))  # operators may edit it
            _check_digest(model_file(repository, name), digest)
        self.verify_tokenizer(repository)

    def verify_tokenizer(self, repository: Path) -> None:
        """Raises ValueError unless the tokenizer belongs to the model."""
        _check_digest(tokenizer_file(repository), self.tokenizer_sha256)


def read_manifest(repository: Path) -> Manifest:
    """Returns the manifest of a model repository; errors as Manifest.read."""
    return Manifest.read(repository / JOINT_ENCODER / MANIFEST_NAME)


def model_file(repository: Path, name: str) -> Path:
    """Returns where Triton expects a model's TorchScript."""
    return repository / name / "1" / "model.pt"


def config_file(repository: Path, name: str) -> Path:
    """Returns where Triton expects a model's configuration."""
    return repository / name / "config.pbtxt"


def tokenizer_file(repository: Path) -> Path:
    """Returns the tokenizer's path."""
    return repository / JOINT_ENCODER / TOKENIZER_NAME


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is missing; export the model again")


def _check_digest(path: Path, digest: str) -> None:
    _check_there(path)
    if sha256(path.read_bytes()).hexdigest() != digest:
        raise ValueError(f"{path} is not the file its manifest tells of; export again")
