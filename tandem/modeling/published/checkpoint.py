"""Opens published checkpoints of BERT, MiniLM, RoBERTa and XLM-R, and fills our encoder with them.

Weights are read by name, here and not by transformers, which silently initialises missing weights
at random; we reject the file instead.
"""

from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from pathlib import Path

from tokenizers import Tokenizer
from torch import nn

from tandem.modeling.config import JointConfig
from tandem.modeling.published.files import (
    CONFIG,
    published_folder,
    read_tokenizer,
    read_weights,
    weight_files,
)
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.weights import (
    SERVED_BERT,
    bert_config,
    named_as_ours,
    published_faults,
)

# RoBERTa's positions start after the padding's id; BERT's start at 0.
_COUNTS_POSITIONS_PAST_PADDING = {"bert": False, "roberta": True, "xlm-roberta": True}
_KINDS: dict[str, tuple[object, ...]] = {"model_type": tuple(_COUNTS_POSITIONS_PAST_PADDING)}


@dataclass(frozen=True, slots=True)
class PublishedCheckpoint:
    """Holds a published encoder's folder, its shape in our terms, and its tokenizer."""

    folder: Path
    config: JointConfig
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
        path = published_folder(name_or_folder)
        folder = PublishedFolder(path)
        with folder.reading("it is no text encoder that can be read"):
            weight_files(path)  # first, so that nothing else is read of a folder without weights
            fields = folder.config()
            folder.check_served({"model_type": None} | fields, _KINDS | SERVED_BERT)
            config = bert_config(fields, max_text_tokens=max_text_tokens)
            tokenizer = read_tokenizer(path, config.vocabulary_size)
            is_past_padding = _COUNTS_POSITIONS_PAST_PADDING[fields["model_type"]]
            first_position = fields.get("pad_token_id", 1) + 1 if is_past_padding else 0
            position_count = fields["max_position_embeddings"]
            if first_position + max_text_tokens > position_count:
                raise folder.refused(
                    f"{CONFIG}: {position_count} positions hold no texts of {max_text_tokens} "
                    "tokens; ask for fewer"
                )
            faults = published_faults(folder.declared_weights(), config, position_count)
        if faults:
            raise folder.refused(f"the weights are not those of {CONFIG}: {'; '.join(faults)}")
        return cls(path, config, tuple(range(config.layer_count)), first_position, tokenizer)

    def halved(self) -> "PublishedCheckpoint":
        """Returns the checkpoint with layers 0, 2, 4 … only (Geigle et al. 2022, figure 4)."""
        kept = self.layer_numbers[::2]
        return replace(self, layer_numbers=kept, config=replace(self.config, layer_count=len(kept)))

    def start(self, encoder: nn.Module) -> None:
        """Loads the published weights into a JointEncoder or a TextTrunk; others of it stay.

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
                file_digest(file, lambda: digest)
        return digest.hexdigest()
