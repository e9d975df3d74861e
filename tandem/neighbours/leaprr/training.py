"""Trains both directions' networks together (Qu et al. 2023, sections 3.5 and 4.1).

A step draws texts; each gives a graph of its own, one of its image, and both mapped to the other
modality. Shapes: B graphs, V nodes, F features.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.evaluation.metrics import RECALL_AT, recall_at, recall_sum
from tandem.evaluation.ranking import first_answer_ranks
from tandem.neighbours.leaprr.config import LeaprrConfig
from tandem.neighbours.leaprr.losses import (
    alignment_loss,
    hardest_positive_triplet_loss,
    neighbour_contrastive_loss,
    raw_hinge_loss,
    reconstruction_loss,
)
from tandem.neighbours.leaprr.network import GraphNetwork
from tandem.neighbours.leaprr.query_graphs import QueryGraphs, mapped_graphs, query_graphs
from tandem.neighbours.leaprr.refinement import (
    LeaprrModel,
    RefinedOrders,
    neighbour_count,
    refine,
    threshold_nodes,
)
from tandem.neighbours.leaprr.similarity_lists import SimilarityLists
from tandem.neighbours.neighbour_lists import Indices

OnStep = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class LeaprrResult:
    """Holds the networks of the best epoch on dev, or of the last one without dev."""

    model: LeaprrModel
    losses: list[float]
    """One a step."""
    dev_recall_sums: list[float]
    """The rSum on dev after each epoch; empty without dev."""


def train_leaprr(
    lists: SimilarityLists,
    config: LeaprrConfig,
    *,
    epoch_count: int,
    seed: int,
    dev: SimilarityLists | None = None,
    on_step: OnStep = lambda _step, _loss: None,
) -> LeaprrResult:
    """Trains on a corpus whose `lists` are the view of images that find texts.

    `on_step` is called with each step's number, from 1, and loss. Raises ValueError for a loss that
    is NaN or infinite, instead of learning from it as the published code does.
    """
    model = LeaprrModel.untrained(config, seed)
    rng = np.random.default_rng(seed)
    optimiser = torch.optim.SGD(
        [*model.image_queries.parameters(), *model.text_queries.parameters()],
        lr=config.learning_rate,
        momentum=config.momentum,
    )
    text_count = lists.cross.shape[1]
    step_count = epoch_count * math.ceil(text_count / config.batch_size)
    losses: list[float] = []
    recall_sums: list[float] = []
    best = model
    for _ in range(epoch_count):
        for texts_B in _batches(rng.permutation(text_count), config.batch_size):
            for group in optimiser.param_groups:
                group["lr"] = _rate(config, len(losses), step_count)
            loss = batch_loss(model, lists, texts_B, rng)
            if not torch.isfinite(loss):
                raise ValueError(f"the loss of step {len(losses) + 1} is {loss.item()}")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            on_step(len(losses), losses[-1])
        if dev is not None:
            recall_sums.append(dev_recall_sum(refine(model, dev), dev))
            if recall_sums[-1] == max(recall_sums) and recall_sums.count(recall_sums[-1]) == 1:
                best = copy.deepcopy(model)
    return LeaprrResult(model if dev is None else best, losses, recall_sums)


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
        loss, scores_BV = _graph_loss(network, graphs, config)
        mapped_loss, mapped_scores_BV = _graph_loss(mapped_network, mapped, config)
        total = total + loss + alignment_loss(scores_BV, mapped_scores_BV, _scored(graphs, config))
        if config.trains_mapped_graphs:
            total = total + mapped_loss
    return total


def dev_recall_sum(orders: RefinedOrders, lists: SimilarityLists) -> float:
    """Returns rSum of both directions' orders of a corpus."""
    texts = [set(np.flatnonzero(lists.item_images == image)) for image in lists.query_images]
    images = [{image} for image in lists.item_images]
    return recall_sum(
        [
            recall_at(first_answer_ranks(order, answers), k)
            for order, answers in [(orders.texts_of_image, texts), (orders.images_of_text, images)]
            for k in RECALL_AT
        ]
    )


def _graph_loss(
    network: GraphNetwork, graphs: QueryGraphs, config: LeaprrConfig
) -> tuple[Tensor, Tensor]:
    """Returns the losses of one batch of graphs, without alignment, and scores [B, V]."""
    features_BVF = torch.from_numpy(graphs.features)
    valid_BV = torch.from_numpy(graphs.valid)
    scores_BV, nodes_BVD = network(features_BVF, torch.from_numpy(graphs.affinity), valid_BV)
    scored_BV, targets_BV = _scored(graphs, config), _targets(graphs, config)
    loss = neighbour_contrastive_loss(
        scores_BV, targets_BV, scored_BV, config.contrastive_temperature
    ) + hardest_positive_triplet_loss(scores_BV, targets_BV, scored_BV, config.margin)
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


def _batches(texts: Indices, size: int) -> Iterator[Indices]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


def _rate(config: LeaprrConfig, step: int, step_count: int) -> float:
    if not config.decays_learning_rate:
        return config.learning_rate
    return config.learning_rate * (1 + math.cos(math.pi * step / step_count)) / 2
