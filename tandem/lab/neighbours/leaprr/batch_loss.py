"""Computes the losses of a step for both directions' networks (Qu et al. 2023, section 3.5).

A step draws texts; each gives a graph of its own, one of its image, and both mapped to the other
modality. Shapes: B graphs, V nodes, F features.
"""

import numpy as np
import torch
from torch import Tensor

from tandem.lab.neighbours.leaprr.config import LeaprrConfig
from tandem.lab.neighbours.leaprr.losses import (
    alignment_loss,
    hardest_positive_triplet_loss,
    neighbour_contrastive_loss,
    raw_hinge_loss,
    reconstruction_loss,
)
from tandem.lab.neighbours.leaprr.network import GraphNetwork
from tandem.lab.neighbours.leaprr.query_graphs import QueryGraphs, mapped_graphs, query_graphs
from tandem.lab.neighbours.leaprr.refinement import (
    LeaprrModel,
    neighbour_count,
    threshold_nodes,
)
from tandem.lab.neighbours.lists.neighbour_lists import Indices
from tandem.lab.neighbours.lists.similarity_lists import SimilarityLists


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
