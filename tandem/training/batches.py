"""What a step is computed from: tensors that belong together.

Shapes: B rows, K negatives a pair, T text tokens, R image tokens, D width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from tokenizers import Tokenizer
from torch import Tensor

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Padded texts: int64 [B, T] each."""

    ids: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class MatchBatch:
    """Texts and images that match row by row.

    `groups` int64 [B] is equal where one row's text also describes the other's image.
    """

    texts: TextBatch
    tokens: Tensor
    groups: Tensor


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Texts beside images; `matches` float [B] is 1 where they belong together."""

    texts: TextBatch
    tokens: Tensor
    matches: Tensor


@dataclass(frozen=True, slots=True)
class TripletBatch:
    """B times 1 + K rows: of each pair its own text and image, then K wrong texts and images."""

    texts: TextBatch
    tokens: Tensor


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> TextBatch:
    """Returns the texts padded with id 0 to the longest of them."""
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
    longest = max(map(len, encoded))
    ids = torch.zeros(len(encoded), longest, dtype=torch.int64)
    for row, row_ids in zip(ids, encoded, strict=True):
        row[: len(row_ids)] = torch.tensor(row_ids)
    return TextBatch(ids, (ids != 0).long())


def with_tensors(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Returns a tensor changed, or a batch with each of its tensors changed."""
    if isinstance(batch, Tensor):
        return change(batch)  # type: ignore[return-value]
    changed = {
        field.name: with_tensors(getattr(batch, field.name), change)
        for field in fields(batch)  # type: ignore[arg-type]
    }
    return type(batch)(**changed)
