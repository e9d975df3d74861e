"""Defines LeaPRR's losses over the scores of graphs' nodes (Qu et al. 2023, section 3.5).

`scored` are the nodes that take part: valid ones, with or without the query's. `targets` are the
right ones among them. A graph without a target has no loss, and the mean is over the others.
Shapes: B graphs, V nodes, F features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def neighbour_contrastive_loss(
    scores_BV: Tensor, targets_BV: Tensor, scored_BV: Tensor, temperature: float
) -> Tensor:
    """Returns the mean of -log of the targets' share of the sum of exp(score / temperature)."""
    logits_BV = scores_BV / temperature
    all_B = logits_BV.masked_fill(~scored_BV, -torch.inf)
    # Finite, so that a graph without targets has no NaN as its gradient.
    low = torch.finfo(logits_BV.dtype).min
    right_B = logits_BV.masked_fill(~targets_BV, low).logsumexp(-1)
    return _mean_of_answered(all_B.logsumexp(-1) - right_B, targets_BV)


def hardest_positive_triplet_loss(
    scores_BV: Tensor, targets_BV: Tensor, scored_BV: Tensor, margin: float
) -> Tensor:
    """Returns the mean of the sum over negatives of max(0, margin + s - lowest target's score)."""
    lowest_B1 = scores_BV.masked_fill(~targets_BV, torch.inf).amin(-1, keepdim=True)
    lowest_B1 = torch.where(lowest_B1.isinf(), 0, lowest_B1)
    hinges_BV = F.relu(margin + scores_BV - lowest_B1) * (scored_BV & ~targets_BV)
    return _mean_of_answered(hinges_BV.sum(-1), targets_BV)


def raw_hinge_loss(scores_BV: Tensor, first_pillar_BV: Tensor, valid_BV: Tensor) -> Tensor:
    """Returns the mean of the sum of max(0, m - s), m the least raw similarity to the first pillar.

    Only the published code has it: it keeps scores above the least of the raw similarities.
    """
    least_B1 = first_pillar_BV.masked_fill(~valid_BV, torch.inf).amin(-1, keepdim=True)
    return (F.relu(least_B1 - scores_BV) * valid_BV).sum(-1).mean()


def alignment_loss(scores_BV: Tensor, mapped_scores_BV: Tensor, scored_BV: Tensor) -> Tensor:
    """Returns the mean divergence KL(p ‖ q) of the softmax of a graph's scores from its mapped one.

    Both sides have a gradient: each direction's network learns from the other.
    """
    log_p_BV = scores_BV.masked_fill(~scored_BV, -torch.inf).log_softmax(-1)
    log_q_BV = mapped_scores_BV.masked_fill(~scored_BV, -torch.inf).log_softmax(-1)
    # Both are -inf where a node is not scored; their difference would be NaN.
    gap_BV = torch.where(scored_BV, log_p_BV, 0) - torch.where(scored_BV, log_q_BV, 0)
    return (log_p_BV.exp() * gap_BV).sum(-1).mean()


def reconstruction_loss(
    features_BVF: Tensor, reconstructed_BVF: Tensor, valid_BV: Tensor
) -> Tensor:
    """Returns the mean distance of features and their reconstruction, both of unit length."""
    gap_BVF = F.normalize(features_BVF, dim=-1) - F.normalize(reconstructed_BVF, dim=-1)
    # Zero has no gradient of its length; this is far below what counts.
    distance_BV = (gap_BVF.square().sum(-1) + 1e-12).sqrt()
    return (distance_BV * valid_BV).sum() / valid_BV.sum()


def _mean_of_answered(loss_B: Tensor, targets_BV: Tensor) -> Tensor:
    answered_B = targets_BV.any(-1)
    return (torch.where(answered_B, loss_B, 0)).sum() / answered_B.sum().clamp(min=1)
