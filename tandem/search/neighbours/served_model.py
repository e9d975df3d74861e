"""Knows which neighbour model the rerank services have."""

import asyncio
import time
from collections.abc import Callable, Sequence

from tandem.contract.deadline import Deadline
from tandem.contract.model_description import NeighbourModelDescription
from tandem.errors import DeadlineExceeded, ServiceUnavailable, TandemError
from tandem.stages.reranking import Reranker

# A rerank_svc that takes longer to describe its model is passed over.
_ANSWER_SECONDS = 1.0
# A search that knows a model waits no longer for its description.
_WAIT_SECONDS = 0.2
# A restarted rerank_svc may have another model, or one where there was none.
_KNOWN_SECONDS = 10.0
_ABSENT_SECONDS = 1.0


class ServedNeighbourModels:
    """Asks a rerank_svc which neighbour model it has, now and then."""

    def __init__(
        self, scorers: Sequence[Reranker], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scorers = scorers
        self._clock = clock
        self._known: NeighbourModelDescription | None = None
        self._failure: str | None = None
        """Why no rerank_svc answered when last asked."""
        self._asking: asyncio.Task[None] | None = None
        self._ask_time = 0.0
        """When the next search asks again."""

    async def model(self, deadline: Deadline) -> NeighbourModelDescription | None:
        """Returns the model of the first rerank_svc that has one; None if there is none.

        A model stays known while no rerank_svc answers. While none is known, raises
        ServiceUnavailable if none answers, and DeadlineExceeded if no time is left.
        """
        if self._asking is None and self._clock() >= self._ask_time:
            # A task of its own, which does not end with the search that began it.
            self._asking = asyncio.create_task(self._ask())
            if self._known is not None:
                await asyncio.wait([self._asking], timeout=_WAIT_SECONDS)
        if self._asking is not None and self._known is None:
            await _ended(self._asking, deadline)
        if self._known is None and self._failure is not None:
            raise ServiceUnavailable(service="rerank", why=self._failure)
        return self._known

    def forget(self) -> None:
        """Asks again at the next search."""
        self._ask_time = 0.0

    async def _ask(self) -> None:
        try:
            self._known = await self._described()
            self._failure = None
        except TandemError as error:
            self._failure = error.message
        finally:
            seconds = _ABSENT_SECONDS if self._known is None else _KNOWN_SECONDS
            self._ask_time = self._clock() + seconds
            self._asking = None

    async def _described(self) -> NeighbourModelDescription | None:
        """Returns the first model, or None if a rerank_svc answers and none that does has one.

        Raises the error of the last if none answers.
        """
        failures: list[TandemError] = []
        for scorer in self._scorers:
            try:
                description = await scorer.describe_model(Deadline.after(_ANSWER_SECONDS))
            except TandemError as error:
                failures.append(error)
                continue
            if description.neighbour_model is not None:
                return description.neighbour_model
        if failures and len(failures) == len(self._scorers):
            raise failures[-1]
        return None


async def _ended(asking: asyncio.Task[None], deadline: Deadline) -> None:
    """Waits for the answer; raises DeadlineExceeded if it does not come in time."""
    await asyncio.wait([asking], timeout=max(0.0, deadline.left()))
    if not asking.done():
        raise DeadlineExceeded(what="the description of the neighbour model")
    asking.result()
