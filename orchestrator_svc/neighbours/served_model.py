"""Knows which neighbour model the rerank services have."""

import time
from collections.abc import Callable, Sequence

from orchestrator_svc.services.interfaces import GraphScorer
from tandem.chassis.deadline import Deadline
from tandem.contract.model_description import NeighbourModelDescription
from tandem.errors import TandemError

# A search waits no longer for the description.
_ASK_SECONDS = 0.2
# A restarted rerank_svc may have another model, or one where there was none.
_KNOWN_SECONDS = 10.0
_ABSENT_SECONDS = 1.0


class ServedNeighbourModels:
    """Asks a rerank_svc which neighbour model it has, now and then."""

    def __init__(
        self, scorers: Sequence[GraphScorer], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scorers = scorers
        self._clock = clock
        self._known: NeighbourModelDescription | None = None
        self._ask_time = 0.0
        """When the next search asks again."""

    async def model(self, deadline: Deadline) -> NeighbourModelDescription | None:
        """Returns the model of the first rerank_svc that has one; None if none says so in time."""
        now = self._clock()
        if now < self._ask_time:
            return self._known
        # Before the answer, so that searches that arrive meanwhile do not ask too.
        self._ask_time = now + _ABSENT_SECONDS
        self._known = await self._asked(min(deadline, Deadline.after(_ASK_SECONDS))) or None
        if self._known is not None:
            self._ask_time = self._clock() + _KNOWN_SECONDS
        return self._known

    def forget(self) -> None:
        """Asks again at the next search."""
        self._ask_time = 0.0

    async def _asked(self, deadline: Deadline) -> NeighbourModelDescription | None:
        for scorer in self._scorers:
            try:
                description = await scorer.describe_model(deadline)
            except TandemError:
                continue
            if description.neighbour_model is not None:
                return description.neighbour_model
        return None
