"""What a step is computed from: tensors that belong together.

Shapes: B rows, P of them, K negatives a pair, T text tokens, R image tokens, D width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from tandem.model_io.buckets import pad_texts
from tandem.model_io.special_tokens import special_tokens
from tandem.model_io.visible_text import visible_text

Batch = TypeVar("Batch")


# Texts are padded to a multiple of it. oneDNN makes kernels for every shape and keeps those of
# 1,024; of all lengths there are more, and a long run spent a seventh of its time on making them.
_LENGTH_STEP = 4


class CaptionTooLong(ValueError):
    """A caption has more tokens than the model has places for."""


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Padded texts: int64 [B, T] each."""

    ids: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class LengthPart:
    """Rows of a batch whose texts are about as long: int64 [P], and those texts."""

    rows: Tensor
    texts: TextBatch


@dataclass(frozen=True, slots=True)
class ImageTextBatch:
    """Texts beside images, row by row: image tokens float16 [B, R, D].

    `image_mask` int64 [B, R] is 1 where a token counts.
    """

    texts: TextBatch
    tokens: Tensor
    image_mask: Tensor


@dataclass(frozen=True, slots=True)
class MatchBatch(ImageTextBatch):
    """Texts and images that match row by row.

    `groups` int64 [B] is equal where two rows are of one family. Rows of two families may say the
    same all the same (PairPool.match_batch).
    """

    groups: Tensor


@dataclass(frozen=True, slots=True)
class PairBatch(ImageTextBatch):
    """Texts beside images; `matches` float [B] is 1 where they belong together."""

    matches: Tensor


@dataclass(frozen=True, slots=True)
class TripletBatch(ImageTextBatch):
    """B times 1 + K rows: of each pair its own text and image, then K wrong texts and images."""


@dataclass(frozen=True, slots=True)
class MaskedBatch(ImageTextBatch):
    """Texts with some words masked, beside their own images.

    `is_masked` bool [B, T] says where; `words` int64 [B, T] are the ids that the texts had.
    """

    is_masked: Tensor
    words: Tensor


def tokenize(tokenizer: Tokenizer, texts: Sequence[str], max_text_tokens: int) -> TextBatch:
    """Returns the texts padded to about the longest of them, with the tokenizer's own padding.

    Raises CaptionTooLong, naming the first text of more than `max_text_tokens`.
    """
    seen = list(map(visible_text, texts))
    encoded = [np.asarray(encoding.ids, np.int32) for encoding in tokenizer.encode_batch(seen)]
    longest = max(map(len, encoded))
    if longest > max_text_tokens:
        text, ids = next(
            each for each in zip(texts, encoded, strict=True) if len(each[1]) > max_text_tokens
        )
        raise CaptionTooLong(
            f"caption {text!r} has {len(ids)} tokens, the limit is {max_text_tokens}; "
            "begin with a tokenizer that knows its words"
        )
    length = min(_padded_length(longest), max_text_tokens)
    padded, mask = pad_texts(encoded, length, special_tokens(tokenizer).pad_id)
    return TextBatch(torch.from_numpy(padded), torch.from_numpy(mask))


def by_length(texts: TextBatch, count: int) -> list[LengthPart]:
    """Returns the rows from the shortest text to the longest, in `count` even parts or fewer.

    Each is padded to about the longest of its own texts, so that short ones cost less; what a row
    gives does not hang on its padding.
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
