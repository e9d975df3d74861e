"""Defines the batches that steps are computed from.

Shapes: B rows, P of them, K negatives a pair, T text tokens, R image tokens, D width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from tandem.model_io.inference.buckets import pad_texts
from tandem.model_io.texts.special_tokens import special_tokens
from tandem.model_io.texts.text import TextPreprocessor
from tandem.model_io.texts.text_rules import TextRules
from tandem.model_io.texts.visible_text import visible_text

Batch = TypeVar("Batch")


# Texts are padded to a multiple of this. oneDNN compiles a kernel per shape and caches 1,024 of
# them; with every length a shape of its own, a long run spent a seventh of its time compiling.
_LENGTH_STEP = 4


class CaptionTooLong(ValueError):
    """A caption has more tokens than the model has positions."""


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Holds padded texts: int64 [B, T] each."""

    ids: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class LengthPart:
    """Holds the rows of a batch whose texts have a similar length, int64 [P], and those texts."""

    rows: Tensor
    texts: TextBatch


@dataclass(frozen=True, slots=True)
class ImageTextBatch:
    """Holds a text and an image per row: image tokens float16 [B, R, D].

    `image_mask` int64 [B, R] is 1 where a token counts.
    """

    texts: TextBatch
    tokens: Tensor
    image_mask: Tensor


@dataclass(frozen=True, slots=True)
class MatchBatch(ImageTextBatch):
    """Holds texts and images that match row by row.

    `groups` int64 [B] is equal where two rows are of one family. Captions of two families may still
    be equal (PairPool.match_batch).
    """

    groups: Tensor


@dataclass(frozen=True, slots=True)
class PairBatch(ImageTextBatch):
    """Holds pairs; `matches` float [B] is 1 where text and image belong together."""

    matches: Tensor


@dataclass(frozen=True, slots=True)
class MaskedBatch(ImageTextBatch):
    """Holds texts with some words masked, and their images.

    `is_masked` bool [B, T] marks the words; `words` int64 [B, T] are the original ids.
    """

    is_masked: Tensor
    words: Tensor


class RuledTexts:
    """Splits captions into token ids, and pads them, by a published model's rules."""

    def __init__(self, tokenizer: Tokenizer, rules: TextRules) -> None:
        self.preprocessor = TextPreprocessor.by_rules(tokenizer, rules)
        self._rules = rules

    def batch(self, texts: Sequence[str]) -> TextBatch:
        """Returns the texts, padded to a served length; raises TextTooLong for a longer one."""
        ids = [self.preprocessor.token_ids(text) for text in texts]
        longest = max(map(len, ids))
        length = next(each for each in self._rules.lengths if each >= longest)
        padded, mask = pad_texts(ids, length, self._rules.pad_id)
        if self._rules.reads_padding:
            mask[:] = 1
        return TextBatch(torch.from_numpy(padded), torch.from_numpy(mask))


Splitter = Tokenizer | RuledTexts


def tokenize(tokenizer: Splitter, texts: Sequence[str], max_text_tokens: int) -> TextBatch:
    """Returns the texts padded to about the longest of them, with the tokenizer's own padding.

    Raises CaptionTooLong, naming the first text that is too long.
    """
    if isinstance(tokenizer, RuledTexts):
        return tokenizer.batch(texts)
    seen = list(map(visible_text, texts))
    encoded = [np.asarray(encoding.ids, np.int32) for encoding in tokenizer.encode_batch(seen)]
    longest = max(map(len, encoded))
    if longest > max_text_tokens:
        text, ids = next(
            each for each in zip(texts, encoded, strict=True) if len(each[1]) > max_text_tokens
        )
        raise CaptionTooLong(
            f"caption {text!r} has {len(ids)} tokens, the limit is {max_text_tokens}; "
            "begin from a tokenizer that knows its words"
        )
    length = min(_padded_length(longest), max_text_tokens)
    padded, mask = pad_texts(encoded, length, special_tokens(tokenizer).pad_id)
    return TextBatch(torch.from_numpy(padded), torch.from_numpy(mask))


def by_length(texts: TextBatch, count: int) -> list[LengthPart]:
    """Returns the rows from the shortest text to the longest, in at most `count` even parts.

    Each part is padded to about its own longest text, so that short texts cost less; padding does
    not change a row's output.
    """
    lengths_B = texts.mask.sum(1)
    parts = []
    for rows_P in lengths_B.argsort(stable=True).tensor_split(min(count, len(lengths_B))):
        length = _padded_length(int(lengths_B[rows_P[-1]]))
        parts.append(
            LengthPart(rows_P, TextBatch(texts.ids[rows_P, :length], texts.mask[rows_P, :length]))
        )
    return parts


def _padded_length(longest: int) -> int:
    return -(-longest // _LENGTH_STEP) * _LENGTH_STEP


def with_tensors(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Returns a tensor changed, or a batch with each of its tensors changed."""
    if isinstance(batch, Tensor):
        return change(batch)  # type: ignore[return-value]
    changed = {
        field.name: with_tensors(getattr(batch, field.name), change)
        for field in fields(batch)  # type: ignore[arg-type]
    }
    return type(batch)(**changed)
