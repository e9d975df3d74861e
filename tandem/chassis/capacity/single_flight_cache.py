"""A byte-limited cache that computes each missing value once, for all concurrent lookups.

It never expires values: a key must identify its value for good, with the version.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tandem.chassis.capacity.cache_metrics import CacheMetrics
from tandem.contract.deadline import Deadline
from tandem.errors import DeadlineExceeded

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class Computation(Generic[Value, Report]):
    """Values in the order of the keys, and the report of computing them."""

    values: Sequence[Value]
    report: Report


@dataclass(frozen=True, slots=True)
class Lookup(Generic[Value, Report]):
    """Values in the order of the keys, and how many of them this lookup computed.

    `reports` come from the computations that it waited for. Each report goes to one lookup only, so
    that their sum over all lookups is what was computed.
    """

    values: Sequence[Value]
    hit_count: int
    miss_count: int
    reports: Sequence[Report]


class _Flight(Generic[Key, Value, Report]):
    """One running computation, and the number of lookups that wait for it."""

    __slots__ = ("keys", "report", "task", "waiter_count")

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = keys
        self.waiter_count = 0
        self.report: Report | None = None
        self.task: asyncio.Task[Mapping[Key, Value]]

    def take_report(self) -> Iterable[Report]:
        """Yields the report once, after the computation has ended."""
        report, self.report = self.report, None
        if report is not None:
            yield report


class SingleFlightCache(Generic[Key, Value, Report]):
    """An LRU cache. For one event loop; not thread-safe."""

    def __init__(
        self,
        max_bytes: int,
        byte_count: Callable[[Key, Value], int],
        metrics: CacheMetrics,
        is_kept: Callable[[Value], bool] = lambda _: True,
    ) -> None:
        """`max_bytes` 0 turns the cache off: each lookup computes all values itself.

        `byte_count` returns the size of an entry, `is_kept` whether to cache a value.
        """
        self._max_bytes = max_bytes
        self._byte_count = byte_count
        self._metrics = metrics
        self._is_kept = is_kept
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._flights: dict[Key, _Flight[Key, Value, Report]] = {}
        self._used_bytes = 0
        metrics.limited(max_bytes)

    @property
    def is_on(self) -> bool:
        """Returns whether the cache is on."""
        return self._max_bytes > 0

    @property
    def used_bytes(self) -> int:
        """Returns the size of all entries."""
        return self._used_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, keys: Sequence[Key]) -> dict[Key, Value]:
        """Returns the cached values and counts them as hits; does not count misses."""
        found = {key: self._use(key) for key in keys if key in self._entries}
        self._metrics.looked_up(sum(key in found for key in keys), 0)
        return found

    async def get(
        self,
        keys: Sequence[Key],
        compute: Callable[[Sequence[Key]], Awaitable[Computation[Value, Report]]],
        timeout_seconds: float,
    ) -> Lookup[Value, Report]:
        """Returns a value for each key; computes the missing ones in one call.

        `compute` gets each key once, and raises DeadlineExceeded after the timeout. Its errors are
        raised here. Other lookups that wait for the same keys try again, because this lookup's
        deadline, or another of its keys, may be the cause; a second error is raised there too,
        unless it is a deadline again. A computation without a waiting lookup is cancelled, and
        nothing of it is cached.
        """
        if not self.is_on:
            computation = await compute(keys)
            lookup = Lookup(computation.values, 0, len(keys), [computation.report])
        else:
            async with Deadline.after(timeout_seconds).kept("a computation for the cache"):
                lookup = await self._get(keys, compute)
        self._metrics.looked_up(lookup.hit_count, lookup.miss_count)
        return lookup

    async def _get(
        self,
        keys: Sequence[Key],
        compute: Callable[[Sequence[Key]], Awaitable[Computation[Value, Report]]],
    ) -> Lookup[Value, Report]:
        values: dict[Key, Value] = {}
        own: set[_Flight[Key, Value, Report]] = set()
        held: set[_Flight[Key, Value, Report]] = set()
        has_failed = False
        try:
            while lacking := [key for key in dict.fromkeys(keys) if key not in values]:
                values.update((key, self._use(key)) for key in lacking if key in self._entries)
                waited = {self._flights[key] for key in lacking if key in self._flights}
                fresh = [k for k in lacking if k not in values and k not in self._flights]
                if fresh:
                    own.add(flight := self._start(fresh, compute))
                    waited.add(flight)
                for flight in waited - held:
                    flight.waiter_count += 1
                held |= waited
                if waited:
                    await asyncio.wait(
                        {flight.task for flight in waited}, return_when=asyncio.FIRST_EXCEPTION
                    )
                errors: list[BaseException] = []
                for flight in waited:
                    if not flight.task.done():
                        continue
                    if (error := _error(flight.task)) is None:
                        values.update(flight.task.result())
                    elif flight in own or (has_failed and not _is_anothers_own(error)):
                        raise error
                    else:
                        errors.append(error)
                has_failed = has_failed or not all(map(_is_anothers_own, errors))
            reports = [report for flight in held for report in flight.take_report()]
        finally:
            for flight in held:
                self._leave(flight)
        miss_count = sum(len(flight.keys) for flight in own)
        return Lookup([values[key] for key in keys], len(keys) - miss_count, miss_count, reports)

    def _start(
        self,
        keys: Sequence[Key],
        compute: Callable[[Sequence[Key]], Awaitable[Computation[Value, Report]]],
    ) -> _Flight[Key, Value, Report]:
        flight: _Flight[Key, Value, Report] = _Flight(keys)
        self._flights.update(dict.fromkeys(keys, flight))
        flight.task = asyncio.create_task(self._run(flight, compute))
        flight.task.add_done_callback(_note_outcome)
        return flight

    async def _run(
        self,
        flight: _Flight[Key, Value, Report],
        compute: Callable[[Sequence[Key]], Awaitable[Computation[Value, Report]]],
    ) -> Mapping[Key, Value]:
        try:
            computation = await compute(flight.keys)
            values = dict(zip(flight.keys, computation.values, strict=True))
            flight.report = computation.report
            self._keep(values)
            return values
        finally:
            self._forget(flight)

    def _leave(self, flight: _Flight[Key, Value, Report]) -> None:
        flight.waiter_count -= 1
        if flight.waiter_count == 0 and not flight.task.done():
            # Now, not when the task has ended: no lookup may join a cancelled computation.
            self._forget(flight)
            flight.task.cancel()

    def _forget(self, flight: _Flight[Key, Value, Report]) -> None:
        for key in flight.keys:
            if self._flights.get(key) is flight:
                del self._flights[key]

    def _use(self, key: Key) -> Value:
        self._entries.move_to_end(key)
        return self._entries[key]

    def _keep(self, values: Mapping[Key, Value]) -> None:
        evicted_count = 0
        for key, value in values.items():
            size = self._byte_count(key, value)
            if size > self._max_bytes or not self._is_kept(value):
                continue
            if key in self._entries:
                self._drop(key)
            while self._used_bytes + size > self._max_bytes:
                self._drop(next(iter(self._entries)))
                evicted_count += 1
            self._entries[key] = value
            self._used_bytes += size
        self._metrics.changed(self._used_bytes, len(self._entries), evicted_count)

    def _drop(self, key: Key) -> None:
        self._used_bytes -= self._byte_count(key, self._entries.pop(key))


def _error(task: asyncio.Task[Mapping[Key, Value]]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _is_anothers_own(error: BaseException) -> bool:
    """Returns whether the error concerns the lookup that started the computation only."""
    return isinstance(error, DeadlineExceeded | asyncio.CancelledError)


def _note_outcome(task: asyncio.Task[Mapping[Key, Value]]) -> None:
    # Otherwise asyncio warns of an unread exception if every lookup left just before.
    if not task.cancelled():
        task.exception()
