"""Describes an exported model: the exporter writes the manifest, services read it."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

from tandem.model_io.pictures.image_rules import ImageRules, RegionRules
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.served_functions import ServedFunctions, TokenSource, TritonModel
from tandem.model_io.texts.text_rules import TextRules
from tandem.model_io.texts.visible_text import VISIBLE_TEXT_VERSION
from tandem.platform.files.json_object import FileInvalid, from_fields, read_object, shown, within
from tandem.platform.files.whole_file import write_text_whole

FORMAT_VERSION = 3
"""Format 2 knew one model, a joint encoder, and no rules for pictures and texts."""
_PUBLISHED_FORMAT = 3
MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"
IMAGE_BACKBONE = "image_backbone"
JOINT_ENCODER = "joint_encoder"
_MAX_SIZE = 100_000_000
# Names become paths, and ".." would leave the repository.
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOKENIZER_FILE = re.compile(r"[a-z][a-z0-9_]*\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Describes one model: its functions, the files that Triton loads, and how to call it."""

    format_version: int
    family: str
    fingerprint: str
    """Equal if embeddings and tokens are comparable."""
    precision: str
    embedding_dim: int
    image_token_count: int
    """Of a picture, as `score_pair` reads it; 0 without `score_pair`."""
    token_width: int
    text: TextRules
    """How a text becomes the ids that `embed_text` reads."""
    image: ImageRules | None
    """How a picture becomes the pixels that `embed_image` reads; None for a model of regions."""
    pair_text: TextRules | None
    """How a text becomes the ids that `score_pair` reads; None without `score_pair`."""
    pair_image: ImageRules | None
    """How a picture becomes the pixels of `score_pair`'s image tokens; None without these."""
    cls_id: int | None
    """Stands for the text in a joint model's input of only an image; None in other models."""
    text_version: int
    """How texts are normalised before they are split into tokens (visible_text.py)."""
    functions: ServedFunctions
    models: Mapping[str, TritonModel]
    """By name, what Triton loads."""
    regions: RegionRules | None = None
    """How a detector's regions become image tokens, for a model that reads no pixels."""
    tokens: TokenSource = TokenSource.STORED
    """Where the tokens of a stored picture come from."""
    default_fusion: Literal["none", "add", "norm_add"] = "none"
    """How the model's authors combine both scores."""
    tokenizers: Mapping[str, str]
    """sha256 of each tokenizer's file, by its name."""
    checkpoint: Mapping[str, Any]
    """The checkpoint that was exported."""
    licence: str = ""
    """Of the weights, as their card says; empty if it does not."""

    @property
    def has_pairs(self) -> bool:
        return self.functions.score_pair is not None

    @property
    def picture(self) -> ImageRules:
        """Returns `image`; raises ValueError for a model that reads regions."""
        if self.image is None:
            raise ValueError(f"{self.family} reads a detector's regions, not pixels")
        return self.image

    @property
    def is_joint(self) -> bool:
        """Returns whether one Triton model embeds and scores; its versions can be swapped."""
        return self.models[self.functions.embed_text].is_joint

    @property
    def has_one_picture(self) -> bool:
        """Returns whether `embed_image` also gives the tokens that `score_pair` reads."""
        tokens = self.functions.image_tokens
        return tokens is not None and tokens in self.functions.embed_image

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns the manifest; raises OSError, or ValueError naming the file and what is wrong."""
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; export the model: tandem models add")
        try:
            fields = read_object(path)
        except FileInvalid as error:
            raise ValueError(
                f"{error}; it is not a manifest of this version: export the model again"
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
            raise ValueError(f"{path} is not a manifest of this version: {error}") from error
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
        self._check_names()
        for rules in (self.text, self.image, self.regions, self.pair_text, self.pair_image):
            if rules is not None:
                rules.check()
        within("embedding_dim", self.embedding_dim, 1, _MAX_SIZE)
        for name in ("image_token_count", "token_width"):
            within(name, getattr(self, name), int(self.has_pairs), _MAX_SIZE)
        if self.is_joint:
            within("cls_id", self.cls_id, 0, self.text.vocabulary_size - 1)

    def _check_names(self) -> None:
        if odd := [name for name in self.models if not _PLAIN_NAME.fullmatch(name)]:
            raise ValueError(f"no model is named {shown(odd[0])}")
        rules = [self.text, *([self.pair_text] if self.pair_text else [])]
        if self.tokenizers.keys() != {each.tokenizer for each in rules}:
            raise ValueError(f"tokenizers {sorted(self.tokenizers)} are not those of the texts")
        if odd := [name for name in self.tokenizers if not _TOKENIZER_FILE.fullmatch(name)]:
            raise ValueError(f"no tokenizer is named {shown(odd[0])}")

    def write(self, path: Path) -> None:
        write_text_whole(path, json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    def verify(self, repository: Path) -> None:
        """Raises ValueError unless the files match the manifest, and its rules the fingerprint."""
        is_published = not self.checkpoint.keys().isdisjoint(("models", "files_sha256"))
        if is_published and self.fingerprint != published_fingerprint(self):
            raise ValueError(
                f"{manifest_file(repository)} was changed: its rules for texts and images are of "
                "another model than its fingerprint; run tandem models add again"
            )
        for name, model in self.models.items():
            _check_there(config_file(repository, name))  # operators may edit it
            _check_digest(model_file(repository, name), model.sha256)
            if model.pt2_sha256 is not None:
                _check_digest(pt2_file(repository, name), model.pt2_sha256)
        self.verify_tokenizers(repository)

    def verify_tokenizers(self, repository: Path) -> None:
        """Raises ValueError unless the tokenizers belong to the model."""
        for name, digest in self.tokenizers.items():
            _check_digest(repository / name, digest)


def read_manifest(repository: Path) -> Manifest:
    """Returns the manifest of a model repository; errors as Manifest.read."""
    return Manifest.read(manifest_file(repository))


def manifest_file(repository: Path) -> Path:
    """Returns the manifest's path: next to the folders that Triton loads."""
    return repository / MANIFEST_NAME


def model_file(repository: Path, name: str) -> Path:
    """Returns where Triton expects a model's TorchScript."""
    return repository / name / "1" / "model.pt"


def pt2_file(repository: Path, name: str) -> Path:
    """Returns where Triton expects a model's torch.export archive."""
    return model_file(repository, name).with_suffix(".pt2")


def config_file(repository: Path, name: str) -> Path:
    """Returns where Triton expects a model's configuration."""
    return repository / name / "config.pbtxt"


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is missing; export the model again")


def _check_digest(path: Path, digest: str) -> None:
    _check_there(path)
    if sha256(path.read_bytes()).hexdigest() != digest:
        raise ValueError(f"{path} is not the file that its manifest describes; export again")


def published_fingerprint(manifest: Manifest) -> str:
    """Returns a digest of what turns content into a published model's embedding and tokens.

    That is all files of the models, what reads them, and every rule for texts and pictures.
    """
    regions = {"regions": asdict(manifest.regions)} if manifest.regions else {}
    parts = {
        "format": _PUBLISHED_FORMAT,
        **regions,
        "tokenizers": dict(manifest.tokenizers),
        "text": manifest.text_version,
        "precision": manifest.precision,
    }
    if manifest.is_joint:
        parts |= {"checkpoint": dict(manifest.checkpoint), "text_rules": asdict(manifest.text)}
    else:
        rules = manifest.text, manifest.image, manifest.pair_text, manifest.pair_image
        parts |= {
            "models": manifest.checkpoint["models"],
            "rules": [None if each is None else _rule_fields(each) for each in rules],
            "tokens": manifest.tokens,
            "sizes": [manifest.embedding_dim, manifest.image_token_count, manifest.token_width],
        }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _rule_fields(rules: TextRules | ImageRules) -> dict[str, Any]:
    """Returns the fields, without a newer one where it has its default, so that digests stay."""
    fields = asdict(rules)
    if fields.get("squash_to") is None:
        fields.pop("squash_to", None)
    return fields
