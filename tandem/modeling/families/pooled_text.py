"""Embeds texts by a BERT-like encoder, a pooling of its states, and layers on top.

Shapes: B batch, T text tokens, D width, d dimensions.
"""

from typing import Final, Literal

import torch.nn.functional as F
from torch import Tensor, nn

Pooling = Literal["mean", "cls"]
# Hidden states of masked positions count nothing; a text has at least one position.
_LEAST_COUNT: Final = 1e-9


class UnitLength(nn.Module):
    """Scales vectors [B, D] to unit length, between two layers."""

    def forward(self, vectors_BD: Tensor) -> Tensor:
        """Returns unit vectors [B, D]."""
        return F.normalize(vectors_BD, dim=-1)


class PooledTextTower(nn.Module):
    """Embeds texts: token ids and mask, int64 [B, T] each, to unit vectors float32 [B, d]."""

    def __init__(self, encoder: nn.Module, pooling: Pooling, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.head = head

    def forward(self, token_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        """Returns unit vectors, float32 [B, d]."""
        states = self.encoder(input_ids=token_ids_BT, attention_mask=text_mask_BT)
        states_BTD = states.last_hidden_state
        if self.pooling == "cls":
            pooled_BD = states_BTD[:, 0]
        else:
            mask_BT1 = text_mask_BT.unsqueeze(-1).to(states_BTD.dtype)
            counts_B1 = mask_BT1.sum(dim=1).clamp(min=_LEAST_COUNT)
            pooled_BD = (states_BTD * mask_BT1).sum(dim=1) / counts_B1
        return F.normalize(self.head(pooled_BD), dim=-1)
