"""What the positions of a layer read of one another.

Shapes: B batch, L positions, H heads, W width of a head, D width of all.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

# Where nothing is attended to, softmax shall still be of finite numbers.
_UNATTENDED_SCORE = -1e4


def attended(
    query_key_value_BLE: Tensor,
    attends_B11L: Tensor,
    head_count: int,
    *,
    weight_dropout: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Returns what each position reads, [B, L, D], by queries, keys and values [B, L, 3D].

    Every position reads those that `attends_B11L` is true for; where that is none, what it reads is
    finite and means nothing. `weight_dropout` is for training and for it alone: without it one
    fused kernel does the work, the same to within rounding and in less time (decision 31).
    """
    batch, length, _ = query_key_value_BLE.shape
    heads = query_key_value_BLE.view(batch, length, 3, head_count, -1)
    q_BHLW, k_BHLW, v_BHLW = heads.permute(2, 0, 3, 1, 4).unbind(0)
    if weight_dropout is None:
        mixed_BHLW = F.scaled_dot_product_attention(q_BHLW, k_BHLW, v_BHLW, attends_B11L)
    else:
        # Written out: at these lengths the fused CPU kernel's backward pass takes twice the time.
        scores_BHLL = (q_BHLW @ k_BHLW.transpose(-2, -1)) * q_BHLW.shape[-1] ** -0.5
        scores_BHLL = scores_BHLL.masked_fill(~attends_B11L, _UNATTENDED_SCORE)
        mixed_BHLW = weight_dropout(scores_BHLL.softmax(-1)).to(v_BHLW.dtype) @ v_BHLW
    return mixed_BHLW.transpose(1, 2).reshape(batch, length, -1)
