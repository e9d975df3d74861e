"""What the positions of a layer read of one another: attention of many heads.

Shapes: B batch, L positions, H heads, W width of a head, D width of all, E = 3 D.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

# Where nothing is attended to, softmax shall still be of finite numbers.
_UNATTENDED_SCORE = -1e4


def multi_head_attention(
    query_key_value_BLE: Tensor,
    attends_B11L: Tensor,
    head_count: int,
    *,
    is_training: bool,
    dropout: float = 0.0,
) -> Tensor:
    """Returns what each position reads, [B, L, D], by queries, keys and values side by side.

    Every position reads those that `attends_B11L` is true for; where that is none, what it reads is
    finite and means nothing. `dropout` is the share of attention weights that training drops. Out
    of training one fused kernel does the work, the same to within rounding, but for bf16
    (decision 31).
    """
    batch, length, _ = query_key_value_BLE.shape
    heads = query_key_value_BLE.view(batch, length, 3, head_count, -1)
    q_BHLW, k_BHLW, v_BHLW = heads.permute(2, 0, 3, 1, 4).unbind(0)
    if is_training or query_key_value_BLE.dtype is torch.bfloat16:
        # Written out: at these lengths the fused CPU kernel's backward pass takes twice the time,
        # and in bf16 it is slower forward too, and rounds by how far a text is padded.
        scores_BHLL = (q_BHLW @ k_BHLW.transpose(-2, -1)) * q_BHLW.shape[-1] ** -0.5
        scores_BHLL = scores_BHLL.masked_fill(~attends_B11L, _UNATTENDED_SCORE)
        weights_BHLL = F.dropout(scores_BHLL.softmax(-1), dropout, training=is_training)
        mixed_BHLW = weights_BHLL.to(v_BHLW.dtype) @ v_BHLW
    else:
        mixed_BHLW = F.scaled_dot_product_attention(q_BHLW, k_BHLW, v_BHLW, attends_B11L)
    return mixed_BHLW.transpose(1, 2).reshape(batch, length, -1)
