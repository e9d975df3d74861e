"""Opens published checkpoints of BERT, MiniLM, RoBERTa and XLM-R, and fills our encoder with them.

Weights are read by name, here and not by transformers, which silently initialises missing weights
at random; we reject the file instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tandem.model_io.json_object import shown
from tandem.model_io.special_tokens import special_tokens
from tandem.modeling.config import JointConfig
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.published.files import (
    CONFIG,
    PublishedCheckpointInvalid,
    declared_weights,
    published_folder,
    read_fields,
    read_tokenizer,
    read_weights,
    weight_files,
)
from tandem.modeling.published.weights import named_as_ours, published_faults
from tandem.modeling.text_trunk import TextTrunk

# RoBERTa's positions start after the padding's id; BERT's start at 0.
_COUNTS_POSITIONS_PAST_PADDING = {"bert": False, "roberta": True, "xlm-roberta": True}
# No field of a real model is larger.
_MAX_INTEGER = 10_000_000


@dataclass(frozen=True, slots=True)
class PublishedCheckpoint:
    """Holds a published encoder's folder, its shape in our terms, and its tokenizer."""

    folder: Path
    config: JointConfig
    layer_count: int
    """Number of published layers."""
    layer_numbers: tuple[int, ...]
    """The layers to take, counted from 0."""
    first_position: int
    """Row of the published position table for a text's first token."""
    tokenizer: Tokenizer

    @classmethod
    def open(cls, name_or_folder: str, max_text_tokens: int = 64) -> "PublishedCheckpoint":
        """Opens a folder, or downloads a checkpoint of that name from the hub.

        Raises PublishedCheckpointInvalid, naming file and field, for anything else, and for weights
        or an architecture that JointEncoder cannot take.
        """
        folder = published_folder(name_or_folder)
        weight_files(folder)  # first, so that nothing else is read of a folder without weights
        fields = _Fields(folder / CONFIG, read_fields(folder / CONFIG))
        kind, first_position = _kind_and_first_position(fields)
        config = _shape(fields, first_position, max_text_tokens)
        tokenizer = read_tokenizer(folder, config.vocabulary_size)
        _check_padding(kind, fields, tokenizer)
        faults = published_faults(
            declared_weights(folder),
            config,
            fields.integer("max_position_embeddings"),
            fields.types(),
        )
        if faults:
            raise PublishedCheckpointInvalid(
                f"{folder}: the weights are not those of {CONFIG}: {'; '.join(faults)}"
            )
        layer_count = config.layer_count
        return cls(
            folder, config, layer_count, tuple(range(layer_count)), first_position, tokenizer
        )

    def halved(self) -> "PublishedCheckpoint":
        """Returns the checkpoint with layers 0, 2, 4 … only (Geigle et al. 2022, figure 4)."""
        kept = self.layer_numbers[::2]
        return replace(self, layer_numbers=kept, config=replace(self.config, layer_count=len(kept)))

    def start(self, encoder: JointEncoder | TextTrunk) -> None:
        """Loads the published weights into `encoder`; weights without a published one stay.

        Those are the image side except its type and norm, the half of the pooler that reads the
        mean, and the classifier. Raises PublishedCheckpointInvalid naming weights that are NaN or
        infinite.
        """
        own = encoder.state_dict()
        converted = named_as_ours(
            read_weights(self.folder), self.layer_numbers, self.first_position, own
        )
        # A text tower has no image side and no pooler.
        encoder.load_state_dict(own | {name: converted[name] for name in own if name in converted})

    def weights_sha256(self) -> str:
        """Returns the digest of all weight files in the order of their names."""
        digest = sha256()
        for path in weight_files(self.folder):
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Fields:
    """Reads fields of config.json and checks their types."""

    path: Path
    values: Mapping[str, Any]

    def integer(self, name: str, unset: int | None = None, low: int = 1) -> int:
        value = self.values.get(name, unset)
        if name not in self.values and unset is None:
            raise PublishedCheckpointInvalid(f"{self.path} lacks {name!r}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refused(name, "an integer")
        if not low <= value <= _MAX_INTEGER:
            raise self.refused(name, f"{low:,} to {_MAX_INTEGER:,}")
        return value

    def fraction(self, name: str) -> float:
        if name not in self.values:
            raise PublishedCheckpointInvalid(f"{self.path} lacks {name!r}")
        value = self.values[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
            raise self.refused(name, "a number between 0 and 1")
        return float(value)

    def types(self) -> int | None:
        """Returns the number of token types; None where the field is missing."""
        return self.integer("type_vocab_size") if "type_vocab_size" in self.values else None

    def refused(self, name: str, wanted: str) -> PublishedCheckpointInvalid:
        return PublishedCheckpointInvalid(
            f"{self.path}: {name} is {shown(self.values.get(name))}, not {wanted}"
        )


def _kind_and_first_position(fields: _Fields) -> tuple[str, int]:
    kind = fields.values.get("model_type")
    if not isinstance(kind, str) or kind not in _COUNTS_POSITIONS_PAST_PADDING:
        known = ", ".join(_COUNTS_POSITIONS_PAST_PADDING)
        raise PublishedCheckpointInvalid(
            f"{fields.path}: model_type is {kind!r:.60}; there are {known}"
        )
    if not _COUNTS_POSITIONS_PAST_PADDING[kind]:
        return kind, 0
    return kind, fields.integer("pad_token_id", unset=1, low=0) + 1


def _check_padding(kind: str, fields: _Fields, tokenizer: Tokenizer) -> None:
    """Raises PublishedCheckpointInvalid where the padding's id would shift the positions."""
    if not _COUNTS_POSITIONS_PAST_PADDING[kind]:
        return
    declared, own = fields.integer("pad_token_id", unset=1, low=0), special_tokens(tokenizer).pad_id
    if declared != own:
        raise PublishedCheckpointInvalid(
            f"{fields.path}: pad_token_id is {declared}, and the tokenizer pads with {own}; they "
            "are not of one checkpoint"
        )


def _shape(fields: _Fields, first_position: int, max_text_tokens: int) -> JointConfig:
    # Any other value would be another function of the same weights.
    for name, only in (
        ("hidden_act", "gelu"),
        ("position_embedding_type", "absolute"),
        ("is_decoder", False),
    ):
        value = fields.values.get(name, only)
        if type(value) is not type(only) or value != only:
            raise PublishedCheckpointInvalid(
                f"{fields.path}: {name} is {value!r:.60}, not {only!r}"
            )
    position_count = fields.integer("max_position_embeddings")
    if first_position + max_text_tokens > position_count:
        raise PublishedCheckpointInvalid(
            f"{fields.path}: {position_count} positions hold no texts of {max_text_tokens} tokens; "
            "ask for fewer"
        )
    try:
        return JointConfig(
            vocabulary_size=fields.integer("vocab_size"),
            width=fields.integer("hidden_size"),
            layer_count=fields.integer("num_hidden_layers"),
            head_count=fields.integer("num_attention_heads"),
            feed_forward_width=fields.integer("intermediate_size"),
            max_text_tokens=max_text_tokens,
            encoder="post_norm",
            norm_epsilon=fields.fraction("layer_norm_eps"),
        )
    except PublishedCheckpointInvalid:
        raise
    except ValueError as error:
        raise PublishedCheckpointInvalid(f"{fields.path}: {error}") from error
