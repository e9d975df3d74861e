"""Pools an encoder's last hidden states for the embedding and for the match head.

Shapes: B batch, L positions of text and image together, D width.
"""

import torch
from torch import Tensor


def mean_of_counted(hidden_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Returns [B, D], the mean over all positions that count.

    This is the embedding before it is normalised, unless a model embeds its first position. Geigle
    et al. 2022 (footnote 7) found the mean better than [CLS].
    """
    weights_BL1 = mask_BL[:, :, None].to(hidden_BLD.dtype)
    return (hidden_BLD * weights_BL1).sum(1) / weights_BL1.sum(1).clamp_min(1e-9)


def first_and_mean(hidden_BLD: Tensor, mean_BD: Tensor, mask_BL: Tensor) -> Tensor:
    """Returns [B, 2 D], first token and mean, for the match head.

    A head that reads only the first token, as BERT's, cannot count objects: attention averages.
    """
    first_BD = hidden_BLD[:, 0] * mask_BL[:, :1]  # zero where it is masked
    return torch.cat([first_BD, mean_BD], dim=-1)
