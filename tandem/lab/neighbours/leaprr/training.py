"""Trains both directions' networks together (Qu et al. 2023, section 4.1), epoch by epoch.

A run can be kept between two epochs and continued later, with the same weights as without a stop.
"""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tandem.lab.evaluation.metrics import RECALL_AT, recall_at, recall_sum
from tandem.lab.evaluation.ranking import first_answer_ranks
from tandem.lab.neighbours.leaprr.config import LeaprrConfig
from tandem.lab.neighbours.leaprr.losses import batch_loss
from tandem.lab.neighbours.leaprr.query_graphs import needed_depth
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel, RefinedOrders, refine
from tandem.lab.neighbours.lists.neighbour_lists import SimilarityLists

OnStep = Callable[[int, float], None]


class LeaprrDiverged(ValueError):
    """A loss or a weight is NaN or infinite; no later step can repair it."""


class LeaprrRun:
    """Trains on a corpus, one epoch a call, and keeps the networks of the best one on dev."""

    def __init__(
        self,
        lists: SimilarityLists,
        config: LeaprrConfig,
        *,
        epoch_count: int,
        seed: int,
        dev: SimilarityLists,
    ) -> None:
        """Makes the networks; `lists` and `dev` are views of images that find texts.

        Raises ValueError for lists that are shorter than the pillars or the compared neighbours,
        and for graphs of more items than `lists` have entries.
        """
        # Items of a graph beyond the lists would be masked in every step.
        graph_items = max(config.image_query_neighbours, config.text_query_neighbours)
        _check_depth(lists, max(needed_depth(config), graph_items), "to learn from")
        _check_depth(dev, needed_depth(config), "of dev")
        self._lists, self._dev, self._epoch_count = lists, dev, epoch_count
        self._model = LeaprrModel.untrained(config, seed)
        self.best = copy.deepcopy(self._model)
        """The networks of the best epoch on dev."""
        self._rng = np.random.default_rng(seed)
        self._optimiser = torch.optim.SGD(
            [*self._model.image_queries.parameters(), *self._model.text_queries.parameters()],
            lr=config.learning_rate,
            momentum=config.momentum,
        )
        self.losses: list[float] = []
        """One a step."""
        self.dev_recall_sums: list[float] = []
        """The rSum on dev after each epoch."""
        self.done_count = 0
        """Epochs that are done."""

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done."""
        return self.done_count >= self._epoch_count

    @property
    def step_count(self) -> int:
        """The number of steps of all epochs."""
        text_count = self._lists.cross.shape[1]
        return self._epoch_count * math.ceil(text_count / self._model.config.batch_size)

    @property
    def is_best(self) -> bool:
        """Whether the last epoch is the best so far."""
        *before, last = self.dev_recall_sums
        return last > max(before, default=-math.inf)

    def run_epoch(self, on_step: OnStep = lambda _step, _loss: None) -> None:
        """Trains on every text once, and measures on dev.

        `on_step` is called with each step's number, from 1, and loss. Raises LeaprrDiverged,
        instead of learning from a loss that is not finite as the published code does; the best
        networks stay.
        """
        config = self._model.config
        texts = self._rng.permutation(self._lists.cross.shape[1])
        for start in range(0, len(texts), config.batch_size):
            for group in self._optimiser.param_groups:
                group["lr"] = _rate(config, len(self.losses), self.step_count)
            texts_B = texts[start : start + config.batch_size]
            loss = batch_loss(self._model, self._lists, texts_B, self._rng)
            if not torch.isfinite(loss):
                raise LeaprrDiverged(
                    f"the loss of step {len(self.losses) + 1:,} of {self.step_count:,} is "
                    f"{loss.item()}; a lower learning_rate may help"
                )
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()
            self.losses.append(loss.item())
            on_step(len(self.losses), self.losses[-1])
        self.done_count += 1
        try:
            orders = refine(self._model, self._dev)
        except ValueError as error:  # of scores that are NaN
            raise LeaprrDiverged(f"the scores of dev: {error}") from error
        self.dev_recall_sums.append(dev_recall_sum(orders, self._dev))
        if self.is_best:
            self.best = copy.deepcopy(self._model)

    def state(self) -> dict[str, Any]:
        """Returns everything that an epoch changes, as tensors and plain values."""
        return {
            "done_count": self.done_count,
            "networks": _weights(self._model),
            "best_networks": _weights(self.best),
            "optimiser": self._optimiser.state_dict(),
            "rng": json.dumps(self._rng.bit_generator.state),
            "losses": list(self.losses),
            "dev_recall_sums": list(self.dev_recall_sums),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from a state of a run with the same arguments."""
        for model, name in [(self._model, "networks"), (self.best, "best_networks")]:
            model.image_queries.load_state_dict(state[name]["image_queries"])
            model.text_queries.load_state_dict(state[name]["text_queries"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._rng.bit_generator.state = json.loads(state["rng"])
        self.losses = list(state["losses"])
        self.dev_recall_sums = list(state["dev_recall_sums"])
        self.done_count = state["done_count"]


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


def _check_depth(lists: SimilarityLists, needed: int, whose: str) -> None:
    if lists.depth < needed:
        raise ValueError(
            f"the lists {whose} have {lists.depth} neighbours, and graphs, pillars or affinity "
            f"need {needed}: build the lists with --k {needed} or more, or set fewer"
        )


def _weights(model: LeaprrModel) -> dict[str, Any]:
    return {
        "image_queries": copy.deepcopy(model.image_queries.state_dict()),
        "text_queries": copy.deepcopy(model.text_queries.state_dict()),
    }


def _rate(config: LeaprrConfig, step: int, step_count: int) -> float:
    if not config.decays_learning_rate:
        return config.learning_rate
    return config.learning_rate * (1 + math.cos(math.pi * step / step_count)) / 2
