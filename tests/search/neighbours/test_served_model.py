"""What is known of the served neighbour model, as time passes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription
from tandem.errors import DeadlineExceeded, ServiceUnavailable, TandemError
from tandem.search.neighbours.served_model import ServedNeighbourModels
from tandem.stages.reranking import Reranker
from tests.search.neighbours.test_neighbour_search import DESCRIPTION, MODEL

WITHOUT = replace(DESCRIPTION, neighbour_model=None)


class Describer:
    """Describes its model, or does not answer."""

    def __init__(self, answers: ModelDescription | TandemError, seconds: float = 0.0) -> None:
        self.answers = answers
        self.seconds = seconds

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Takes its time, a turn of the event loop at least."""
        await asyncio.sleep(self.seconds)
        if isinstance(self.answers, TandemError):
            raise self.answers
        return self.answers


class Clock:
    """Stands still until it is moved."""

    seconds = 0.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.seconds


def deadline() -> Deadline:
    """Returns one that is far away."""
    return Deadline.after(60.0)


def down() -> ServiceUnavailable:
    """Returns what a call of a service that is gone raises."""
    return ServiceUnavailable(service="rerank", why="connection refused")


def models(scorers: Sequence[Describer]) -> tuple[ServedNeighbourModels, Clock]:
    """Returns what is known of them, and its clock."""
    clock = Clock()
    return ServedNeighbourModels(cast(Sequence[Reranker], scorers), clock=clock), clock


async def test_a_known_model_stays_without_an_answer() -> None:
    """A description that is late says nothing about the model."""
    describer = Describer(DESCRIPTION)
    known, clock = models([describer])
    assert await known.model(deadline()) == MODEL

    describer.answers = DeadlineExceeded(what="DescribeModel")
    clock.seconds = 60.0

    assert await known.model(deadline()) == MODEL


async def test_a_search_without_time_does_not_wait_for_the_first_answer() -> None:
    known, _ = models([Describer(DESCRIPTION, seconds=0.1)])

    with pytest.raises(DeadlineExceeded):
        await known.model(Deadline.after(0.0))
    assert await known.model(deadline()) == MODEL


async def test_a_model_that_was_removed_is_forgotten() -> None:
    describer = Describer(DESCRIPTION)
    known, clock = models([describer])
    assert await known.model(deadline()) == MODEL

    describer.answers = WITHOUT
    clock.seconds = 60.0

    assert await known.model(deadline()) is None
    assert await known.model(deadline()) is None


@pytest.mark.parametrize("others", [WITHOUT, DESCRIPTION])
async def test_one_answer_is_enough(others: ModelDescription) -> None:
    known, _ = models([Describer(down()), Describer(others)])

    assert await known.model(deadline()) == others.neighbour_model


async def test_without_an_answer_every_search_fails() -> None:
    """The one that asked, one that came meanwhile, and one before the next question."""
    describer = Describer(down())
    known, clock = models([describer])

    outcomes = await asyncio.gather(
        *(known.model(deadline()) for _ in range(2)), return_exceptions=True
    )
    assert [type(each) for each in outcomes] == [ServiceUnavailable] * 2
    with pytest.raises(ServiceUnavailable):
        await known.model(deadline())

    describer.answers = DESCRIPTION
    clock.seconds = 2.0
    assert await known.model(deadline()) == MODEL


async def test_a_cancelled_search_does_not_cancel_the_question() -> None:
    known, _ = models([Describer(DESCRIPTION)])
    first = asyncio.ensure_future(known.model(deadline()))
    second = asyncio.ensure_future(known.model(deadline()))
    await asyncio.sleep(0)

    first.cancel()

    assert await second == MODEL
