"""Trains both directions' networks together (Qu et al. 2023, section 4.1), epoch by epoch.

A run can be kept between two epochs and continued later, with the same weights as without a stop.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tandem.evaluation.metrics import RECALL_AT, recall_at, recall_sum
from tandem.evaluation.ranking import first_answer_ranks
from tandem.neighbours.leaprr.batch_loss import batch_loss
from tandem.neighbours.leaprr.config import LeaprrConfig
from tandem.neighbours.leaprr.query_graphs import query_graphs
from tandem.neighbours.leaprr.refinement import LeaprrModel, RefinedOrders, refine
from tandem.neighbours.leaprr.similarity_lists import SimilarityLists
from tandem.neighbours.neighbour_lists import Indices

OnStep = Callable[[int, float], None]


class LeaprrDiverged(ValueError):
    """A loss or a weight is NaN or infinite; no later step can repair it."""


@dataclass(frozen=True, slots=True)
class LeaprrResult:
    """Holds the networks of the best epoch on dev, or of the last one without dev."""

    model: LeaprrModel
    losses: list[float]
    """One a step."""
    dev_recall_sums: list[float]
    """The rSum on dev after each epoch; empty without dev."""


class LeaprrRun:
    """Trains on a corpus, one epoch a call, and keeps the networks of the best one on dev."""

    def __init__(
        self,
        lists: SimilarityLists,
        config: LeaprrConfig,
        *,
        epoch_count: int,
        seed: int,
        dev: SimilarityLists | None = None,
    ) -> None:
        """Makes the networks; both `lists` are the view of images that find texts.

        Raises ValueError for a number of epochs below 1, for lists that are shorter than the
        pillars or the compared neighbours, and for graphs of more items than `lists` have entries,
        of which the rest would be masked in every step.
        """
        if epoch_count < 1:
            raise ValueError(f"{epoch_count} epochs train nothing; take 1 or more")
        _check_graphs_are_full(lists, config)
        _check_pillars(lists, config, "to learn from")
        if dev is not None:
            _check_pillars(dev, config, "dev")
        self._lists, self._dev, self._epoch_count = lists, dev, epoch_count
        self._model = LeaprrModel.untrained(config, seed)
        self._best = copy.deepcopy(self._model)
        self._rng = np.random.default_rng(seed)
        self._optimiser = torch.optim.SGD(
            [*self._model.image_queries.parameters(), *self._model.text_queries.parameters()],
            lr=config.learning_rate,
            momentum=config.momentum,
        )
        self._losses: list[float] = []
        self._recall_sums: list[float] = []
        self._done_count = 0

    @property
    def done_count(self) -> int:
        """The number of epochs that are done."""
        return self._done_count

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done."""
        return self._done_count >= self._epoch_count

    @property
    def step_count(self) -> int:
        """The number of steps of all epochs."""
        text_count = self._lists.cross.shape[1]
        return self._epoch_count * math.ceil(text_count / self._model.config.batch_size)

    @property
    def is_best(self) -> bool:
        """Whether the last epoch is the best so far."""
        sums = self._recall_sums
        return self._dev is None or sums[-1] > max(sums[:-1], default=-math.inf)

    def result(self) -> LeaprrResult:
        """Returns the best networks so far."""
        return LeaprrResult(self._best, list(self._losses), list(self._recall_sums))

    def run_epoch(self, on_step: OnStep = lambda _step, _loss: None) -> None:
        """Trains on every text once, and measures on dev.

        `on_step` is called with each step's number, from 1, and loss. Raises LeaprrDiverged,
        instead of learning from a loss that is not finite as the published code does; the best
        networks stay.
        """
        config = self._model.config
        for texts_B in _batches(
            self._rng.permutation(self._lists.cross.shape[1]), config.batch_size
        ):
            for group in self._optimiser.param_groups:
                group["lr"] = _rate(config, len(self._losses), self.step_count)
            loss = batch_loss(self._model, self._lists, texts_B, self._rng)
            if not torch.isfinite(loss):
                raise LeaprrDiverged(
                    f"the loss of step {len(self._losses) + 1:,} of {self.step_count:,} is "
                    f"{loss.item()}; a lower learning_rate may help"
                )
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()
            self._losses.append(loss.item())
            on_step(len(self._losses), self._losses[-1])
        self._done_count += 1
        if self._dev is not None:
            self._recall_sums.append(dev_recall_sum(_refined(self._model, self._dev), self._dev))
        if self.is_best:
            self._best = copy.deepcopy(self._model)

    def state(self) -> dict[str, Any]:
        """Returns everything that an epoch changes, as tensors and plain values."""
        return {
            "done_count": self._done_count,
            "networks": _weights(self._model),
            "best_networks": _weights(self._best),
            "optimiser": self._optimiser.state_dict(),
            "rng": json.dumps(self._rng.bit_generator.state),
            "losses": list(self._losses),
            "dev_recall_sums": list(self._recall_sums),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from a state of a run with the same arguments."""
        for model, name in [(self._model, "networks"), (self._best, "best_networks")]:
            model.image_queries.load_state_dict(state[name]["image_queries"])
            model.text_queries.load_state_dict(state[name]["text_queries"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._rng.bit_generator.state = json.loads(state["rng"])
        self._losses = list(state["losses"])
        self._recall_sums = list(state["dev_recall_sums"])
        self._done_count = state["done_count"]


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

    Raises LeaprrDiverged as LeaprrRun does.
    """
    run = LeaprrRun(lists, config, epoch_count=epoch_count, seed=seed, dev=dev)
    while not run.is_over:
        run.run_epoch(on_step)
    return run.result()


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


def _refined(model: LeaprrModel, dev: SimilarityLists) -> RefinedOrders:
    """Returns dev's orders; raises LeaprrDiverged for scores that are NaN."""
    try:
        return refine(model, dev)
    except ValueError as error:
        if "NaN" not in str(error):
            raise
        raise LeaprrDiverged(f"the scores of dev: {error}") from error


def _check_graphs_are_full(lists: SimilarityLists, config: LeaprrConfig) -> None:
    for name, items, list_QH in [
        ("image_query_neighbours", "texts", lists.items_of_query),
        ("text_query_neighbours", "images", lists.queries_of_item),
    ]:
        count, depth = getattr(config, name), list_QH.shape[1]
        if count > depth:
            raise ValueError(
                f"{name} is {count}, and the lists to learn from have {depth} {items}: set it to "
                f"{depth} or less, or build the lists with --k {count} or more"
            )


def _check_pillars(lists: SimilarityLists, config: LeaprrConfig, whose: str) -> None:
    """Makes one graph of either direction, which fails as all would."""
    for view in (lists, lists.reversed()):
        try:
            query_graphs(view, np.arange(min(1, len(view.cross))), 1, config)
        except ValueError as error:
            raise ValueError(f"the lists {whose}: {error}") from error


def _weights(model: LeaprrModel) -> dict[str, Any]:
    return {
        "image_queries": copy.deepcopy(model.image_queries.state_dict()),
        "text_queries": copy.deepcopy(model.text_queries.state_dict()),
    }


def _batches(texts: Indices, size: int) -> Iterator[Indices]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


def _rate(config: LeaprrConfig, step: int, step_count: int) -> float:
    if not config.decays_learning_rate:
        return config.learning_rate
    return config.learning_rate * (1 + math.cos(math.pi * step / step_count)) / 2
