"""Checkpoints of BERT, MiniLM, RoBERTa and XLM-R as others publish them, and their way into ours.

Weights are read by name out of safetensors files, here and not by the library that wrote them: it
draws at random what a file lacks and goes on, and we refuse.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tandem.modeling.config import JointConfig
from tandem.modeling.pretrained_encoder import PretrainedEncoder
from tandem.modeling.published_files import (
    CONFIG,
    PublishedCheckpointInvalid,
    published_folder,
    read_fields,
    read_tokenizer,
    read_weights,
    weight_files,
)
from tandem.modeling.published_weights import named_as_ours

# RoBERTa's first position has the number after the padding's id; BERT's has number 0.
_COUNTS_POSITIONS_PAST_PADDING = {"bert": False, "roberta": True, "xlm-roberta": True}


@dataclass(frozen=True, slots=True)
class PublishedCheckpoint:
    """A published encoder: its folder, its shape in our words, and its tokenizer."""

    folder: Path
    config: JointConfig
    layer_count: int
    """Layers that were published."""
    layer_numbers: tuple[int, ...]
    """Those of them that are taken, from 0."""
    first_position: int
    """The row of the published position table that a text's first token gets."""
    tokenizer: Tokenizer

    @classmethod
    def open(cls, name_or_folder: str, max_text_tokens: int = 64) -> "PublishedCheckpoint":
        """Returns the checkpoint in a folder, or of that name on the hub, which is downloaded.

        Raises PublishedCheckpointInvalid, naming file and field, for what is neither, for weights
        that are not safetensors, and for an architecture that PretrainedEncoder is not.
        """
        folder = published_folder(name_or_folder)
        weight_files(folder)  # before anything else is read of what is refused
        fields = read_fields(folder / CONFIG)
        first_position = _first_position(fields, folder / CONFIG)
        config = _shape(fields, folder / CONFIG, first_position, max_text_tokens)
        tokenizer = read_tokenizer(folder)
        if tokenizer.get_vocab_size() > config.vocabulary_size:
            raise PublishedCheckpointInvalid(
                f"{folder}: the tokenizer has {tokenizer.get_vocab_size():,} tokens and "
                f"{CONFIG} {config.vocabulary_size:,}; they are not of one checkpoint"
            )
        layer_count = config.layer_count
        return cls(
            folder, config, layer_count, tuple(range(layer_count)), first_position, tokenizer
        )

    def halved(self) -> "PublishedCheckpoint":
        """Returns the same with every second layer: 0, 2, 4 … (Geigle et al. 2022, figure 4)."""
        kept = self.layer_numbers[::2]
        return replace(self, layer_numbers=kept, config=replace(self.config, layer_count=len(kept)))

    def start(self, encoder: PretrainedEncoder) -> None:
        """Puts the published weights into `encoder`; what has no published one stays as it is.

        That is the image's side but for its type and norm, the half of the pooler that reads the
        mean, and the classifier. Raises PublishedCheckpointInvalid naming every weight that is
        missing, unexpected or of another shape.
        """
        own = encoder.state_dict()
        try:
            converted = named_as_ours(
                read_weights(self.folder),
                self.layer_count,
                self.layer_numbers,
                self.first_position,
                own,
            )
        except ValueError as error:
            raise PublishedCheckpointInvalid(f"{self.folder}: {error}") from error
        encoder.load_state_dict(own | converted)

    def weights_sha256(self) -> str:
        """Returns the digest over all files of weights, in the order of their names."""
        digest = sha256()
        for path in weight_files(self.folder):
            digest.update(path.read_bytes())
        return digest.hexdigest()


def _first_position(fields: Mapping[str, Any], path: Path) -> int:
    kind = fields.get("model_type")
    if kind not in _COUNTS_POSITIONS_PAST_PADDING:
        known = ", ".join(_COUNTS_POSITIONS_PAST_PADDING)
        raise PublishedCheckpointInvalid(f"{path}: model_type is {kind!r}; there are {known}")
    return fields.get("pad_token_id", 1) + 1 if _COUNTS_POSITIONS_PAST_PADDING[kind] else 0


def _shape(
    fields: Mapping[str, Any], path: Path, first_position: int, max_text_tokens: int
) -> JointConfig:
    # Each would be another function of the same weights.
    for name, only in (
        ("hidden_act", "gelu"),
        ("position_embedding_type", "absolute"),
        ("is_decoder", False),
    ):
        if fields.get(name, only) != only:
            raise PublishedCheckpointInvalid(f"{path}: {name} is {fields[name]!r}, not {only!r}")
    try:
        if first_position + max_text_tokens > fields["max_position_embeddings"]:
            raise ValueError(
                f"{fields['max_position_embeddings']} positions hold no texts of "
                f"{max_text_tokens} tokens; ask for fewer"
            )
        return JointConfig(
            vocabulary_size=fields["vocab_size"],
            width=fields["hidden_size"],
            layer_count=fields["num_hidden_layers"],
            head_count=fields["num_attention_heads"],
            feed_forward_width=fields["intermediate_size"],
            max_text_tokens=max_text_tokens,
            encoder="post_norm",
            norm_epsilon=fields["layer_norm_eps"],
        )
    except KeyError as error:
        raise PublishedCheckpointInvalid(f"{path} lacks {error}") from error
    except ValueError as error:
        raise PublishedCheckpointInvalid(f"{path}: {error}") from error
