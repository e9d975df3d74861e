"""Computes the losses of a step for both directions' networks (Qu et al. 2023, section 3.5).

A step draws texts; each gives a graph of its own, one of its image, and both mapped to the other
modality. `scored` are the nodes that take part in a loss: valid ones, with or without the query's.
`targets` are the right ones among them. A graph without a target has no loss, and the mean is over
the others. Shapes: B graphs, V nodes, F features.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.lab.neighbours.leaprr.config import LeaprrConfig
from tandem.lab.neighbours.leaprr.network import GraphNetwork
from tandem.lab.neighbours.leaprr.query_graphs import QueryGraphs, mapped_graphs, query_graphs
from tandem.lab.neighbours.leaprr.refinement import (
    LeaprrModel,
    neighbour_count,
    threshold_nodes,
)
from tandem.lab.neighbours.lists.neighbour_lists import Indices, SimilarityLists


def batch_loss(
    model: LeaprrModel, lists: SimilarityLists, texts_B: Indices, rng: np.random.Generator
) -> Tensor:
    """Returns the sum of all losses of the graphs of these texts and of their images."""
    config, reverse = model.config, lists.reversed()
    images_B = lists.item_images[texts_B]
    of_images, of_texts = (
        query_graphs(
            view,
            queries_B,
            neighbour_count(config, is_text_query),
            config,
            threshold_nodes(config, is_text_query),
        )
        for view, queries_B, is_text_query in [(lists, images_B, False), (reverse, texts_B, True)]
    )
    total = torch.zeros(())
    for graphs, view, queries_B, network, mapped_network in [
        (of_images, reverse, texts_B, model.image_queries, model.text_queries),
        (of_texts, lists, images_B, model.text_queries, model.image_queries),
    ]:
        mapped = mapped_graphs(graphs, view, queries_B, config, rng)
        loss, scores_BV = _graph_loss(network, graphs, config, config.triplet_weight)
        # The published program gives mapped graphs no triplet loss.
        mapped_loss, mapped_scores_BV = _graph_loss(mapped_network, mapped, config, 0.0)
        gap = alignment_loss(scores_BV, mapped_scores_BV, _scored(graphs, config))
        total = total + loss + config.alignment_weight * gap
        if config.trains_mapped_graphs:
            total = total + mapped_loss
    return total


def _graph_loss(
    network: GraphNetwork, graphs: QueryGraphs, config: LeaprrConfig, triplet_weight: float
) -> tuple[Tensor, Tensor]:
    """Returns the losses of one batch of graphs, without alignment, and scores [B, V]."""
    features_BVF = torch.from_numpy(graphs.features)
    valid_BV = torch.from_numpy(graphs.valid)
    scores_BV, nodes_BVD = network(features_BVF, torch.from_numpy(graphs.affinity), valid_BV)
    scored_BV, targets_BV = _scored(graphs, config), _targets(graphs, config)
    contrastive = neighbour_contrastive_loss(
        scores_BV, targets_BV, scored_BV, config.contrastive_temperature
    )
    loss = config.contrastive_weight * contrastive
    if triplet_weight:
        triplet = hardest_positive_triplet_loss(scores_BV, targets_BV, scored_BV, config.margin)
        loss = loss + triplet_weight * triplet
    if config.has_raw_hinge:
        loss = loss + raw_hinge_loss(scores_BV, features_BVF[:, :, 0], valid_BV)
    if config.reconstruction_weight:
        rebuilt_BVF = network.reconstruction(nodes_BVD)
        loss = loss + config.reconstruction_weight * reconstruction_loss(
            features_BVF, rebuilt_BVF, valid_BV
        )
    return loss, scores_BV


def _scored(graphs: QueryGraphs, config: LeaprrConfig) -> Tensor:
    """Returns bool [B, V]: the nodes whose scores the losses read."""
    scored_BV = torch.from_numpy(graphs.valid).clone()
    scored_BV[:, 0] = config.scores_query
    return scored_BV


def _targets(graphs: QueryGraphs, config: LeaprrConfig) -> Tensor:
    """Returns bool [B, V]: the answers, and the query where it is scored."""
    targets_BV = torch.from_numpy(graphs.targets).clone()
    if config.scores_query:
        targets_BV[:, 0] = targets_BV.any(1) if config.skips_unanswered else True
    return targets_BV


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
