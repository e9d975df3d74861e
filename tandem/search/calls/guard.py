"""Calls a stage with a deadline, a circuit breaker and at most one retry."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tandem.contract.deadline import Deadline
from tandem.errors import (
    DeadlineExceeded,
    InternalFault,
    ModelOutputInvalid,
    ModelUnavailable,
    Overloaded,
    ServiceUnavailable,
    TandemError,
)
from tandem.search.calls.breaker import Breaker
from tandem.search.calls.retry_budget import RetryBudget
from tandem.search.metrics import BREAKER_STATE, RETRIES, note_call
from tandem.search.settings import SEARCH_DEFAULTS, SearchSettings

Answer = TypeVar("Answer")

# Reserved of each call's time, so that its answer or error arrives before the caller's deadline.
HOP_SECONDS = 0.005

# A timeout after less than this says nothing about the service.
_FAIR_SECONDS = 0.1

_JITTER_SECONDS = (0.01, 0.05)

FAILURES: tuple[type[TandemError], ...] = (
    ServiceUnavailable,
    ModelUnavailable,
    ModelOutputInvalid,
    InternalFault,
)
"""Errors that count against a service, as a timeout after a fair time does. Overload does not: a
service that sheds load is healthy, and opening its circuit breaker would waste the capacity that it
has. Any other error is an answer."""

_RETRIED: tuple[type[TandemError], ...] = (ServiceUnavailable, ModelUnavailable)


class CallGuard:
    """Makes calls through one circuit breaker; `name` appears in errors and metrics.

    Work gets a deadline a little before the caller's.
    """

    def __init__(
        self,
        name: str,
        retry_budget: RetryBudget | None = None,
        settings: SearchSettings = SEARCH_DEFAULTS,
        *,
        failures: tuple[type[TandemError], ...] = FAILURES,
        clock: Callable[[], float] = time.monotonic,
        jitter: random.Random | None = None,
    ) -> None:
        self._name = name
        self._retry_budget = retry_budget or RetryBudget()
        self._failures = failures
        self._jitter = jitter or random.Random()
        gauge = BREAKER_STATE.labels(name)
        self._breaker = Breaker(
            settings, clock=clock, on_change=lambda state: gauge.set(state.value)
        )
        for outcome in ("answered", "failed", "over_budget"):
            RETRIES.labels(name, outcome)

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        return self._breaker.is_refusing

    async def call(
        self, work: Callable[[Deadline], Awaitable[Answer]], deadline: Deadline
    ) -> Answer:
        """Returns what the work returns, which may be done twice.

        Retries it once if the service is unavailable. Raises ServiceUnavailable at once while the
        circuit breaker is open, DeadlineExceeded at once if no time is left, and the work's errors.
        """
        self._retry_budget.earn()
        try:
            return await self._try(work, deadline)
        except _RETRIED:
            pause_seconds = self._jitter.uniform(*_JITTER_SECONDS)
            is_late = deadline.left() <= pause_seconds + HOP_SECONDS
            if is_late or self._breaker.is_refusing:
                raise
            if not self._retry_budget.spend():
                RETRIES.labels(self._name, "over_budget").inc()
                raise
        await asyncio.sleep(pause_seconds)
        try:
            answer = await self._try(work, deadline)
        except TandemError:
            RETRIES.labels(self._name, "failed").inc()
            raise
        RETRIES.labels(self._name, "answered").inc()
        return answer

    async def call_once(
        self, work: Callable[[Deadline], Awaitable[Answer]], deadline: Deadline
    ) -> Answer:
        """Does the work once, even if the circuit breaker is open, as for a change of state.

        Only the caller knows whether a retry is safe.
        """
        end, _ = _before(deadline)
        return await work(end)

    def note_late(self, waited_seconds: float) -> None:
        """Notes that a call was abandoned after that time."""
        if waited_seconds >= _FAIR_SECONDS:
            self._breaker.failed()

    async def _try(
        self, work: Callable[[Deadline], Awaitable[Answer]], deadline: Deadline
    ) -> Answer:
        end, left_seconds = _before(deadline)
        if not self._breaker.admit():
            raise ServiceUnavailable(
                service=self._name, why="its circuit breaker is open: it failed too often"
            )
        start_time = time.perf_counter()
        try:
            answer = await work(end)
        except self._failures:
            self._breaker.failed()
            raise
        except DeadlineExceeded:
            self.note_late(left_seconds)
            raise
        except Overloaded:
            raise
        except TandemError:
            self._breaker.succeeded()
            raise
        finally:
            note_call(self._name, time.perf_counter() - start_time)
        self._breaker.succeeded()
        return answer


def _before(deadline: Deadline) -> tuple[Deadline, float]:
    """Returns the deadline of a call and its seconds; raises DeadlineExceeded without any."""
    end = deadline.earlier(HOP_SECONDS)
    return end, end.left_for("the call before all its stages")
