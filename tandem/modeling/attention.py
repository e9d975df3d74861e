"""Computes multi-head attention.

Shapes: B batch, L positions, H heads, W width of a head, D width of all, E = 3 D.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

# Finite, so that softmax stays finite for a row that attends to nothing.
_UNATTENDED_SCORE = -1e4


def multi_head_attention(
    query_key_value_BLE: Tensor,
    attends_B11L: Tensor,
    head_count: int,
    *,
    is_training: bool,
    dropout: float = 0.0,
) -> Tensor:
    """Returns each position's attention output, [B, L, D], of concatenated queries, keys, values.

    Every position attends to those where `attends_B11L` is true; where there is none, the result is
    finite but meaningless. `dropout` applies to attention weights in training. Outside training a
    fused kernel gives the same result up to rounding, except in bf16 (decision 31).
    """
    batch, length, _ = query_key_value_BLE.shape
    heads = query_key_value_BLE.view(batch, length, 3, head_count, -1)
    q_BHLW, k_BHLW, v_BHLW = heads.permute(2, 0, 3, 1, 4).unbind(0)
    if is_training or query_key_value_BLE.dtype is torch.bfloat16:
        # Written out: at these lengths the fused CPU kernel's backward pass takes twice as long.
        # In bf16 its forward pass is slower too, and its rounding depends on the padding.
        scores_BHLL = (q_BHLW @ k_BHLW.transpose(-2, -1)) * q_BHLW.shape[-1] ** -0.5
        scores_BHLL = scores_BHLL.masked_fill(~attends_B11L, _UNATTENDED_SCORE)
        weights_BHLL = F.dropout(scores_BHLL.softmax(-1), dropout, training=is_training)
        mixed_BHLW = weights_BHLL.to(v_BHLW.dtype) @ v_BHLW
    else:
        mixed_BHLW = F.scaled_dot_product_attention(q_BHLW, k_BHLW, v_BHLW, attends_B11L)
    return mixed_BHLW.transpose(1, 2).reshape(batch, length, -1)
