"""Pools states into one vector: several heads attend to parts, and the mean sees everything.

Shapes: B batch, L positions, D width, H heads, V width of a head, E output width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD_COUNT = 8


class AttentionPool(nn.Module):
    """Gives a vector of unit length for each row of states."""

    def __init__(self, width: int, out_width: int) -> None:
        super().__init__()
        self.attend = nn.Linear(width, HEAD_COUNT)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(2 * width, out_width)

    def forward(self, states_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Returns float32 [B, E]; a mask is 1 where a position counts."""
        counts_BL1 = mask_BL[:, :, None].to(states_BLD.dtype)
        scores_BLH = self.attend(states_BLD).float().masked_fill(counts_BL1 == 0, -1e4)
        values_BLHV = self.value(states_BLD).unflatten(-1, (HEAD_COUNT, -1))
        weights_BLH1 = scores_BLH.softmax(1)[..., None].to(values_BLHV.dtype)
        attended_BD = (weights_BLH1 * values_BLHV).sum(1).flatten(1)
        mean_BD = (states_BLD * counts_BL1).sum(1) / counts_BL1.sum(1).clamp_min(1.0)
        pooled = torch.cat([attended_BD.to(mean_BD.dtype), mean_BD], dim=-1)
        return F.normalize(self.out(pooled).float(), dim=-1)
