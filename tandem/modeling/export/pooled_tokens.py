"""Pools a picture's tokens: the mean of each 2 x 2 block of their grid, a quarter of the bytes.

Shapes: B batch, R image tokens, D token width, g tokens on a side of the grid.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def pooled_count(token_count: int) -> int:
    """Returns how many tokens are left; raises ValueError unless they are a square grid.

    One token before the grid, as [CLS] of a ViT, stays as it is.

    >>> pooled_count(577)
    145
    >>> pooled_count(49)
    16
    """
    first_count, side = _grid(token_count)
    return first_count + math.ceil(side / 2) ** 2


def pooled(tokens_BRD: Tensor) -> Tensor:
    """Returns the pooled tokens in the same dtype."""
    first_count, side = _grid(tokens_BRD.shape[1])
    first, grid = tokens_BRD[:, :first_count], tokens_BRD[:, first_count:].float()
    grid_BDgg = grid.transpose(1, 2).unflatten(2, (side, side))
    # With an odd side, the last row and column are means of fewer tokens.
    small = F.avg_pool2d(grid_BDgg, 2, ceil_mode=True, count_include_pad=False)
    rows = small.flatten(2).transpose(1, 2).to(tokens_BRD.dtype)
    return torch.cat([first, rows], dim=1)


def _grid(token_count: int) -> tuple[int, int]:
    """Returns how many tokens come before the grid, and the grid's side."""
    for first_count in (0, 1):
        side = math.isqrt(token_count - first_count)
        if side > 1 and side * side == token_count - first_count:
            return first_count, side
    raise ValueError(
        f"{token_count} image tokens are not a square grid, so they cannot be pooled; choose "
        "tokens stored or recomputed"
    )
