"""Random inputs of the functions of a published model.

Shapes: B batch, S pixels per side, T text tokens, R image tokens, D width.
"""

import torch
from torch import Tensor

from tests.support.modeling.published_cross_encoders import WORD_COUNT
from tests.support.modeling.published_pairs import SIZE


def pictures(batch: int, seed: int = 1) -> Tensor:
    """Returns noise, uint8 [B, S, S, 3]."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, SIZE, SIZE, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def texts(batch: int, length: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Returns ids and mask, int64 [B, T]; all but the first are padded in their second half."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, WORD_COUNT, (batch, length), generator=generator)
    ids[:, 0] = 2
    mask = torch.ones_like(ids)
    mask[1:, max(1, length // 2) :] = 0
    return ids * mask, mask


def pairs(
    batch: int, length: int, token_count: int, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns ids, mask, tokens float16 [B, R, D] and their mask."""
    generator = torch.Generator().manual_seed(batch)
    tokens = torch.randn(batch, token_count, width, generator=generator).half()
    return (*texts(batch, length), tokens, torch.ones(batch, token_count, dtype=torch.int64))
