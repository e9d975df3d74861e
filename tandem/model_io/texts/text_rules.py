"""Describes how a text becomes token ids: part of the manifest and of the fingerprint.

Two different settings are two different models, so whatever changes a token id is a field here.
"""

from dataclasses import dataclass
from typing import Final

from tandem.platform.files.json_object import shown, within

_MAX_SIZE: Final = 100_000_000
# Each is at most 1.5 times the one before, so padding averages at most a fifth. Half of the demo's
# texts have at most 11 tokens, all have at most 26. The model's own limit is the last bucket.
_SHORT_TEXT_LENGTHS = (8, 12, 16, 24, 32, 48)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRules:
    """Describes how a text becomes token ids [T], and how rows are padded."""

    tokenizer: str
    """Name of the tokenizer's file next to the manifest."""
    max_tokens: int
    """Includes special tokens. A longer text is cut so that the special tokens stay."""
    lengths: tuple[int, ...]
    """Ascending padded lengths; the last is `max_tokens`. One alone means a fixed length."""
    vocabulary_size: int
    pad_id: int
    is_lower_case: bool = False
    """Whether letters are made lower case before the tokenizer reads them."""
    first_id: int | None = None
    """Replaces the first token id, as BLIP's [ENC] replaces [CLS] in a pair; None keeps it."""
    reads_padding: bool = False
    """Whether the model attends to padding, so that the mask is all ones (SigLIP)."""
    prompt: str = ""
    """Text put before every text, as sentence-transformers' prompts are."""

    def check(self) -> None:
        """Raises ValueError unless lengths and ids are possible."""
        within("max_tokens", self.max_tokens, 1, _MAX_SIZE)
        within("vocabulary_size", self.vocabulary_size, 1, _MAX_SIZE)
        within("pad_id", self.pad_id, 0, self.vocabulary_size - 1)
        if self.first_id is not None:
            within("first_id", self.first_id, 0, self.vocabulary_size - 1)
        lengths = self.lengths
        if list(lengths) != sorted(set(lengths)) or lengths[-1:] != (self.max_tokens,):
            raise ValueError(f"lengths {shown(lengths)} do not ascend to {self.max_tokens}")
        within("lengths", lengths[0], 1, self.max_tokens)


def text_length_buckets(max_text_tokens: int) -> tuple[int, ...]:
    """Returns the lengths that texts are padded to, ascending."""
    shorter = (length for length in _SHORT_TEXT_LENGTHS if length < max_text_tokens)
    return (*shorter, max_text_tokens)
