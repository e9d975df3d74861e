"""A model with random weights that computes in a millisecond, for runs about other things."""

from collections.abc import Iterable
from pathlib import Path

import torch

from tandem.corpus.records import Record
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.joint_model import JointModel

SMALL = JointConfig(vocabulary_size=200, width=32, layer_count=1, head_count=2)
_SENTENCES = (
    "two dogs left of one umbrella",
    "a red cat above three blue cars",
    "one green tree right of four yellow stars",
)


_MAX_TEXT_LENGTH = 50
"""Characters; the model's own words are few, so that a character can be a token."""


def short_texts(records: Iterable[Record]) -> list[str]:
    """Returns the captions that the model takes, with a few digits more."""
    return [
        caption.text
        for record in records
        for caption in record.captions
        if len(caption.text) <= _MAX_TEXT_LENGTH
    ]


def save_small(
    folder: Path,
    config: JointConfig = SMALL,
    /,
    *,
    logit_shift: float = 0.0,
    word_noise: float = 0.0,
) -> Path:
    """Writes a checkpoint of the same random weights each time; returns `folder`.

    `logit_shift` is added to each match logit, and leaves embeddings as they are; `word_noise`, the
    deviation of what is added to the words' vectors, does not.
    """
    torch.manual_seed(20)
    model = JointModel(config)
    with torch.no_grad():
        model.joint_encoder.classifier.bias[1] += logit_shift
        model.joint_encoder.word.weight += word_noise * torch.randn(
            model.joint_encoder.word.weight.shape  # type: ignore[arg-type]
        )
    save_checkpoint(folder, model, train_tokenizer(_SENTENCES, SMALL.vocabulary_size), {})
    return folder
