"""Computes SCAN's attention of fragments to those of the other side (Lee et al. 2018).

Shapes: P pictures, C captions, Q fragments that ask, K fragments that are read, D width; one of P
and C may be 1 in either argument, and then stands for all.
"""

from typing import Final

import torch.nn.functional as F
from torch import Tensor

from tandem.lab.zoo.region_inputs import UNREAD

_SLOPE: Final = 0.1
_EPSILON: Final = 1e-8


def attended(
    asking_PCQD: Tensor,
    read_PCKD: Tensor,
    asks_PCQ: Tensor,
    is_read_PCK: Tensor,
    sharpness: float,
) -> Tensor:
    """Returns what each fragment reads of the other side, [P, C, Q, D].

        w_qk = leaky_relu(<asking_q, read_k>), normalised over q; softmax_k(sharpness * w_qk)

    Fragments of both sides have unit length; masks are 1 where one counts.
    """
    fits_PCQK = F.leaky_relu(asking_PCQD @ read_PCKD.transpose(-1, -2), _SLOPE)
    fits_PCQK = fits_PCQK * asks_PCQ[..., None].to(fits_PCQK.dtype)
    fits_PCQK = fits_PCQK / (fits_PCQK.norm(dim=-2, keepdim=True) + _EPSILON)
    logits_PCQK = (sharpness * fits_PCQK).masked_fill(~is_read_PCK.bool()[..., None, :], UNREAD)
    context_PCQD: Tensor = logits_PCQK.softmax(-1) @ read_PCKD
    return context_PCQD
