"""Defines the hinges that all models of the zoo learn by: of the hardest negative, or of all.

Shapes: B pairs, picture by caption.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def hinge_loss(
    scores_BB: Tensor, groups_B: Tensor, margin: float, *, takes_hardest: bool
) -> Tensor:
    """Returns the sum over the batch of hinges in both directions, of own pairs on the diagonal.

        hardest: sum_j [ max_k (m + s_jk - s_jj)+ + max_k (m + s_kj - s_jj)+ ]
        all:     sum_j [ sum_k (m + s_jk - s_jj)+ + sum_k (m + s_kj - s_jj)+ ]

    k runs over the rows of other groups; the published codes leave only the pair itself out, which
    is what groups that are all different give (Faghri et al. 2018, equations 5 and 6).

    >>> scores = torch.tensor([[0.5, 0.6], [0.1, 0.9]])
    >>> round(hinge_loss(scores, torch.arange(2), 0.2, takes_hardest=True).item(), 4)
    0.3
    """
    own_B1 = scores_BB.diagonal()[:, None]
    same_BB = groups_B[:, None] == groups_B[None, :]
    wrong_captions_BB = F.relu(margin + scores_BB - own_B1).masked_fill(same_BB, 0.0)
    wrong_images_BB = F.relu(margin + scores_BB - own_B1.T).masked_fill(same_BB, 0.0)
    if takes_hardest:
        return wrong_captions_BB.amax(1).sum() + wrong_images_BB.amax(0).sum()
    total: Tensor = torch.stack([wrong_captions_BB, wrong_images_BB]).sum()
    return total
