"""A query's pairs of several shards go to the model together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tandem.contract.inference_cost import InferenceCost
from tandem.errors import DeadlineExceeded, ModelOutputInvalid, ModelUnavailable
from tandem.model_io.inference.joined_scoring import JoinedCall, JoinedScoring
from tandem.model_io.inference.model_runner import Inferred

QUERY, OTHER = b"query", b"other"
# No test waits so long.
LONG_SECONDS = 600.0


class Model:
    """Scores a pair by its image's first value, once it may; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[float]] = []
        self.seconds: list[float] = []
        self.is_cancelled = False
        self.error: Exception | None = None
        self.refused: set[float] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def score(
        self, texts: Sequence[Any], images: Sequence[Any], seconds: float
    ) -> Inferred[NDArray[np.float32]]:
        """Returns the logits."""
        assert len(texts) == len(images)
        values = [float(image[0, 0]) for image in images]
        self.asked.append(values)
        self.seconds.append(seconds)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        if self.error:
            raise self.error
        if self.refused.intersection(values):
            raise ModelOutputInvalid(model="joint_encoder", why="NaN")
        cost = InferenceCost(pair_count=len(values), token_count=10 * len(values))
        return Inferred(np.asarray(values, dtype=np.float32), cost)


async def scored(
    call: JoinedCall, model: Model, values: Sequence[int], seconds: float = LONG_SECONDS
) -> Inferred[NDArray[np.float32]]:
    """Scores pairs whose images have these values."""
    images = [np.full((2, 3), value, dtype=np.float16) for value in values]
    texts = [np.array([2, 3], dtype=np.int32)] * len(values)
    return await call.match_logits(model.score, texts, images, seconds)


async def turns() -> None:
    """Lets every task that can continue do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_pairs_of_one_query_go_together_and_each_call_gets_its_own() -> None:
    joined, model = JoinedScoring(LONG_SECONDS), Model()
    with joined.expected(QUERY) as one, joined.expected(QUERY) as two:
        first = asyncio.create_task(scored(one, model, [1, 2, 3], seconds=500.0))
        await turns()
        assert not model.asked  # it waits for the second
        with joined.expected(OTHER) as alone:
            assert (await scored(alone, model, [7])).values.tolist() == [7]
        second = asyncio.create_task(scored(two, model, [4], seconds=400.0))
        answers = await asyncio.gather(first, second)

    assert model.asked == [[7], [1, 2, 3, 4]]
    assert [answer.values.tolist() for answer in answers] == [[1, 2, 3], [4]]
    assert [answer.cost.pair_count for answer in answers] == [3, 1]
    assert [answer.cost.token_count for answer in answers] == [30, 10]
    assert 400.0 < model.seconds[1] <= 500.0


async def test_a_call_that_has_nothing_to_score_holds_up_no_other() -> None:
    joined, model = JoinedScoring(LONG_SECONDS), Model()
    with joined.expected(QUERY) as one:
        with joined.expected(QUERY):
            first = asyncio.create_task(scored(one, model, [1]))
            await turns()
            assert not model.asked
        assert (await first).values.tolist() == [1]


async def test_what_is_late_is_not_waited_for() -> None:
    joined, model = JoinedScoring(0.0), Model()
    with joined.expected(QUERY) as one, joined.expected(QUERY) as late:
        assert (await scored(one, model, [1])).values.tolist() == [1]
        assert (await scored(late, model, [2])).values.tolist() == [2]

    assert model.asked == [[1], [2]]


async def test_a_failure_of_the_model_is_every_calls() -> None:
    joined, model = JoinedScoring(LONG_SECONDS), Model()
    model.error = ModelUnavailable(model="joint_encoder", why="it does not answer")
    with joined.expected(QUERY) as one, joined.expected(QUERY) as two:
        ends = await asyncio.gather(
            scored(one, model, [1]), scored(two, model, [2]), return_exceptions=True
        )
    assert [type(end) for end in ends] == [ModelUnavailable, ModelUnavailable]

    model.error = None
    with joined.expected(QUERY) as three:
        assert (await scored(three, model, [3])).values.tolist() == [3]


async def test_pairs_that_the_model_refuses_fail_their_own_call_alone() -> None:
    """A damaged item of one shard takes no scores from the other."""
    joined, model = JoinedScoring(LONG_SECONDS), Model()
    model.refused = {2}
    with joined.expected(QUERY) as one, joined.expected(QUERY) as two:
        sound, damaged = await asyncio.gather(
            scored(one, model, [1]), scored(two, model, [2]), return_exceptions=True
        )

    assert not isinstance(sound, BaseException)
    assert sound.values.tolist() == [1]
    assert isinstance(damaged, ModelOutputInvalid)
    assert sorted(model.asked) == [[1], [1, 2], [2]]


async def test_an_inference_ends_when_all_of_its_callers_have_given_up() -> None:
    joined, model = JoinedScoring(LONG_SECONDS), Model()
    model.may_answer.clear()
    with joined.expected(QUERY) as one, joined.expected(QUERY) as two:
        calls = [
            asyncio.create_task(scored(one, model, [1])),
            asyncio.create_task(scored(two, model, [2])),
        ]
        await turns()
        assert model.asked == [[1, 2]]
        calls[0].cancel()
        await turns()
        assert not model.is_cancelled
        calls[1].cancel()
        await turns()

    assert model.is_cancelled
    assert all(call.cancelled() for call in calls)


async def test_a_short_deadline_is_its_own_calls_alone() -> None:
    """The other call, which may be another user's with the same query, gets its scores."""
    joined, model = JoinedScoring(LONG_SECONDS), Model()
    model.may_answer.clear()
    with joined.expected(QUERY) as one, joined.expected(QUERY) as two:
        patient = asyncio.create_task(scored(one, model, [1]))
        await turns()
        with pytest.raises(DeadlineExceeded):
            await scored(two, model, [2], seconds=0.0)
        model.may_answer.set()
        assert (await patient).values.tolist() == [1]


async def test_who_gave_up_before_the_others_came_is_not_scored() -> None:
    joined, model = JoinedScoring(LONG_SECONDS), Model()
    with joined.expected(QUERY) as one, joined.expected(QUERY) as two:
        given_up = asyncio.create_task(scored(one, model, [1]))
        await turns()
        given_up.cancel()
        await turns()
        assert (await scored(two, model, [2])).values.tolist() == [2]

    assert model.asked == [[2]]


def test_shares_add_up_to_the_whole() -> None:
    whole = InferenceCost(
        pair_count=7, token_count=100, padded_token_count=131, triton_compute_seconds=0.7
    )
    parts = whole.divided([3, 3, 1])
    total = sum(parts, InferenceCost())

    assert [part.pair_count for part in parts] == [3, 3, 1]
    assert (total.token_count, total.padded_token_count) == (100, 131)
    assert total.triton_compute_seconds == pytest.approx(0.7)
    assert total.triton_queue_seconds is None
    assert max(abs(part.token_count - 100 * part.pair_count / 7) for part in parts) < 1
