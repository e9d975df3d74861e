"""From an encoder's last hidden states to what embedding and match logit are made of.

Shapes: B batch, L positions of text and image together, D width.
"""

import torch
from torch import Tensor


def mean_of_counted(hidden_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Returns [B, D], the mean over all positions that count.

    The embedding before its length is taken off (methods: mean pooling beats CLS).
    """
    weights_BL1 = mask_BL[:, :, None].to(hidden_BLD.dtype)
    return (hidden_BLD * weights_BL1).sum(1) / weights_BL1.sum(1).clamp_min(1e-9)


def first_and_mean(hidden_BLD: Tensor, mean_BD: Tensor, mask_BL: Tensor) -> Tensor:
    """Returns [B, 2 D], what the match head reads.

    The first token alone, as in BERT, cannot count: attention averages over what it reads.
    """
    first_BD = hidden_BLD[:, 0] * mask_BL[:, :1]  # nothing, where it does not count
    return torch.cat([first_BD, mean_BD], dim=-1)
