"""Calls to a downstream service: their time, their retries, and the circuit breaker."""

import asyncio
import random
import time
from statistics import median

import pytest

from tandem import errors
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.deadline import Deadline
from tandem.search.calls.guard import CallGuard
from tandem.search.calls.retry_budget import RetryBudget
from tandem.search.metrics import BREAKER_STATE, RETRIES
from tests.support.chassis.longer_times import holds_with_longer_times


class Scripted:
    """Fails by the list, one call each, then answers; notes how much time each call had."""

    def __init__(self, *failures: errors.TandemError | float) -> None:
        self.failures = list(failures)
        self.timeouts: list[float] = []

    async def __call__(self, deadline: Deadline) -> str:
        """Does as the list says."""
        self.timeouts.append(deadline.left())
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, errors.TandemError):
                raise failure
            async with deadline.kept("it"):
                await asyncio.sleep(failure)
        return "answered"


def guard(**options: object) -> CallGuard:
    """Returns one whose pauses are always the same."""
    return CallGuard("scripted", jitter=random.Random(5), **options)  # type: ignore[arg-type]


def gone() -> errors.TandemError:
    """Returns what a service says that is leaving."""
    return errors.ServiceUnavailable(service="scripted", why="it is leaving")


def retries(outcome: str) -> float:
    """Returns the metric."""
    return float(RETRIES.labels("scripted", outcome)._value.get())


async def test_a_call_ends_a_little_before_its_callers_deadline() -> None:
    async def check(factor: float) -> None:
        scripted = Scripted(600.0)
        async with asyncio.timeout(90):
            with pytest.raises(errors.DeadlineExceeded):
                await guard().call(scripted, Deadline.after(1.0 * factor))
        assert scripted.timeouts[0] <= 1.0 * factor - 0.005

    await holds_with_longer_times(check)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.004])
async def test_without_time_left_nothing_is_called(seconds: float) -> None:
    scripted = Scripted()
    for send in (guard().call, guard().call_once):
        with pytest.raises(errors.DeadlineExceeded):
            await send(scripted, Deadline.after(seconds))

    assert not scripted.timeouts


@pytest.mark.parametrize("error", [gone(), errors.ModelUnavailable(model="it", why="gone")])
async def test_an_unreachable_service_is_retried_once(error: errors.TandemError) -> None:
    before = retries("answered")
    scripted = Scripted(error)
    start_time = time.monotonic()
    await guard().call(scripted, Deadline(start_time + 60))
    assert time.monotonic() - start_time >= 0.01
    assert len(scripted.timeouts) == 2
    assert retries("answered") == before + 1

    scripted = Scripted(error, error, error)
    with pytest.raises(type(error)):
        await guard().call(scripted, Deadline.after(60))
    assert len(scripted.timeouts) == 2


@pytest.mark.parametrize(
    "error",
    [
        errors.DeadlineExceeded(what="it"),
        errors.Overloaded(what="it is full"),
        errors.ModelOutputInvalid(model="it", why="NaN"),
    ],
)
async def test_no_other_error_is_retried(error: errors.TandemError) -> None:
    scripted = Scripted(error)
    with pytest.raises(type(error)):
        await guard().call(scripted, Deadline.after(60))

    assert len(scripted.timeouts) == 1


async def test_writes_are_not_retried() -> None:
    """Only the caller knows whether a retry is safe; and no circuit breaker holds a write back."""
    scripted = Scripted(*(gone() for _ in range(8)))
    asked = guard()
    for _ in range(8):
        with pytest.raises(errors.ServiceUnavailable):
            await asked.call_once(scripted, Deadline.after(60))
    await asked.call_once(scripted, Deadline.after(60))

    assert len(scripted.timeouts) == 9


async def test_an_outage_is_not_answered_by_twice_the_calls() -> None:
    """Two services share the retry budget of the process, and it runs out."""
    budget = RetryBudget(saved_count=3.0)
    scripted = Scripted(*(gone() for _ in range(200)))
    over = retries("over_budget")
    for _ in range(20):
        with pytest.raises(errors.ServiceUnavailable):
            await guard(retry_budget=budget).call(scripted, Deadline.after(60))

    assert 20 + 3 <= len(scripted.timeouts) <= 20 + 3 + 2
    assert retries("over_budget") > over


@pytest.mark.parametrize(
    "failure",
    [
        errors.ModelUnavailable(model="it", why="gone"),
        0.3,
    ],
)
async def test_the_circuit_breaker_opens_for_a_failing_service(
    failure: errors.TandemError | float,
) -> None:
    """From the fifth consecutive failure on, calls are refused at once and not sent."""

    async def check(factor: float) -> None:
        late = failure * factor if isinstance(failure, float) else failure
        call_seconds = 0.15 * factor
        scripted = Scripted(*[late] * 20)
        # No cool-down passes meanwhile.
        asked = guard(retry_budget=RetryBudget(0.0), clock=lambda: 0.0)
        for _ in range(5):
            with pytest.raises(errors.TandemError):
                await asked.call(scripted, Deadline.after(call_seconds))
        assert asked.is_refusing
        seconds = []
        for _ in range(20):
            start_time = time.monotonic()
            with pytest.raises(errors.ServiceUnavailable, match="too often"):
                await asked.call(scripted, Deadline.after(call_seconds))
            seconds.append(time.monotonic() - start_time)
        assert median(seconds) < call_seconds / 3

        assert len(scripted.timeouts) == 5
        assert BREAKER_STATE.labels("scripted")._value.get() == 2

    await holds_with_longer_times(check)


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (errors.Overloaded(what="it is full"), 60.0),
        (errors.IndexNotFound(index_id="a"), 60.0),
        # A caller in a hurry says nothing about the service.
        (0.3, 0.05),
    ],
)
async def test_other_errors_do_not_spare_it(
    failure: errors.TandemError | float, seconds: float
) -> None:
    """A service that answers, even with an error, is available."""
    scripted = Scripted(*[failure] * 20)
    asked = guard()
    for _ in range(20):
        with pytest.raises(errors.TandemError):
            await asked.call(scripted, Deadline.after(seconds))

    assert not asked.is_refusing


async def test_the_circuit_breaker_closes_after_recovery() -> None:
    """One probe at a time; the first that succeeds closes the circuit breaker."""
    clock = [0.0]
    scripted = Scripted(*(errors.InternalFault(why="a bug") for _ in range(6)))
    asked = guard(clock=lambda: clock[0])
    for _ in range(7):
        with pytest.raises(errors.TandemError):
            await asked.call(scripted, Deadline.after(60))
    clock[0] = 1.0
    with pytest.raises(errors.InternalFault):
        await asked.call(scripted, Deadline.after(60))
    assert asked.is_refusing

    clock[0] = 2.0
    for _ in range(3):
        await asked.call(scripted, Deadline.after(60))

    assert len(scripted.timeouts) == 5 + 1 + 3


async def test_each_call_is_timed_after_success_and_failure() -> None:
    """Answered, refused and late calls, by the service's name."""
    scripted = Scripted(errors.IndexNotFound(index_id="x"), 30.0)
    before = timed_count()
    asked = guard()
    with pytest.raises(errors.IndexNotFound):
        await asked.call(scripted, Deadline.after(60.0))
    with pytest.raises(errors.DeadlineExceeded):
        await asked.call(scripted, Deadline.after(0.2))
    await asked.call(scripted, Deadline.after(60.0))
    assert timed_count() == before + 3


def timed_count() -> float:
    """Returns how many questions were timed."""
    name = "tandem_orchestrator_call_duration_seconds_count"
    return REGISTRY.get_sample_value(name, {"dependency": "scripted"}) or 0.0
