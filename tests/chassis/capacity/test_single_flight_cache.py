"""Kept values are the right ones, within the limit, and computed once however many ask."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.chassis.capacity.cache_metrics import CacheMetrics
from tandem.chassis.capacity.single_flight_cache import Computation, Lookup, SingleFlightCache
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.errors import DeadlineExceeded, ModelUnavailable

TIMEOUT_SECONDS = 5.0
Cache = SingleFlightCache[str, str, int]


def cache(max_bytes: int = 1000) -> Cache:
    """Returns a cache whose entries take as many bytes as their values have letters."""
    return SingleFlightCache(max_bytes, lambda _, value: len(value), CacheMetrics("test"))


@dataclass(slots=True)
class Worker:
    """Computes a value from a key, once the test allows it, and records the keys."""

    asked: list[list[str]] = field(default_factory=list)
    finished: list[list[str]] = field(default_factory=list)
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    may_go: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None

    async def compute(self, keys: Sequence[str]) -> Computation[str, int]:
        """Reports how many values it made."""
        self.asked.append(list(keys))
        self.begun.release()
        await self.may_go.wait()
        if self.error:
            raise self.error
        self.finished.append(list(keys))
        return Computation([value_of(key) for key in keys], len(keys))


def value_of(key: str) -> str:
    return f"value of {key}"


def eager() -> Worker:
    """Returns a worker that need not wait."""
    worker = Worker()
    worker.may_go.set()
    return worker


async def under_way(worker: Worker) -> None:
    """Returns once another computation has begun."""
    await asyncio.wait_for(worker.begun.acquire(), TIMEOUT_SECONDS)


def look_up(cache: Cache, worker: Worker, *keys: str) -> "asyncio.Task[Lookup[str, int]]":
    return asyncio.create_task(cache.get(keys, worker.compute, TIMEOUT_SECONDS))


async def test_a_cached_value_is_not_computed_again() -> None:
    kept, worker = cache(), eager()
    await kept.get(["a", "b"], worker.compute, TIMEOUT_SECONDS)

    lookup = await kept.get(["c", "a", "d", "c"], worker.compute, TIMEOUT_SECONDS)

    assert lookup.values == [value_of(key) for key in ("c", "a", "d", "c")]
    assert (lookup.hit_count, lookup.miss_count, lookup.reports) == (2, 2, [2])
    assert worker.asked == [["a", "b"], ["c", "d"]]
    assert kept.find(["d", "e"]) == {"d": value_of("d")}


async def test_fifty_concurrent_lookups_share_one_computation() -> None:
    kept, worker = cache(), Worker()
    lookups = [look_up(kept, worker, "a", "b") for _ in range(50)]
    await under_way(worker)
    worker.may_go.set()

    found = await asyncio.gather(*lookups)

    assert worker.asked == [["a", "b"]]
    assert all(lookup.values == [value_of("a"), value_of("b")] for lookup in found)
    assert sorted(lookup.miss_count for lookup in found) == [0] * 49 + [2]
    assert [report for lookup in found for report in lookup.reports] == [2]


async def test_off_each_computes_for_itself() -> None:
    """With no bytes nothing is kept or shared: the control of the two tests above."""
    off, worker = cache(max_bytes=0), eager()

    found = await asyncio.gather(*(look_up(off, worker, "a", "a") for _ in range(3)))

    assert worker.asked == [["a", "a"]] * 3
    assert [lookup.miss_count for lookup in found] == [2, 2, 2]
    assert not off.find(["a"])


async def test_a_cancelled_caller_does_not_cancel_shared_work() -> None:
    kept, worker = cache(), Worker()
    first = look_up(kept, worker, "a")
    await under_way(worker)
    second = look_up(kept, worker, "a", "b")
    await under_way(worker)

    first.cancel()
    await asyncio.wait([first])
    worker.may_go.set()

    found = await second
    assert found.values == [value_of("a"), value_of("b")]
    assert (found.miss_count, sorted(found.reports)) == (1, [1, 1])
    assert worker.asked == [["a"], ["b"]]


async def test_abandoned_work_is_cancelled() -> None:
    kept, worker = cache(), Worker()
    lookups = [look_up(kept, worker, "a") for _ in range(2)]
    await under_way(worker)

    for lookup in lookups:
        lookup.cancel()
    await asyncio.wait(lookups)
    worker.may_go.set()

    assert (await look_up(kept, worker, "a")).values == [value_of("a")]
    assert worker.asked == [["a"], ["a"]]
    assert worker.finished == [["a"]]


async def test_a_lookup_does_not_join_cancelled_work() -> None:
    kept, worker = cache(), eager()
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def linger(_: Sequence[str]) -> Computation[str, int]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
        raise AssertionError

    first = asyncio.create_task(kept.get(["a"], linger, TIMEOUT_SECONDS))
    await begun.wait()
    first.cancel()
    await asyncio.wait([first])

    found = await asyncio.wait_for(look_up(kept, worker, "a"), TIMEOUT_SECONDS)

    assert found.values == [value_of("a")]
    may_end.set()


async def test_a_failure_reaches_all_callers_and_is_not_cached() -> None:
    kept, worker = cache(), Worker(error=ModelUnavailable(model="m", why="gone"))
    lookups = [look_up(kept, worker, "a") for _ in range(10)]
    await under_way(worker)
    worker.may_go.set()

    outcomes = await asyncio.gather(*lookups, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [ModelUnavailable] * 10
    assert len(worker.asked) == 2
    worker.error = None
    assert (await look_up(kept, worker, "a")).values == [value_of("a")]


async def test_a_failure_by_another_key_is_not_passed_on() -> None:
    kept, poisoned, good = cache(), Worker(error=ModelUnavailable(model="m", why="NaN")), eager()
    first = look_up(kept, poisoned, "a", "poison")
    await under_way(poisoned)
    second = look_up(kept, good, "a")
    await asyncio.sleep(0)
    poisoned.may_go.set()

    with pytest.raises(ModelUnavailable):
        await first
    assert (await second).values == [value_of("a")]


async def test_a_deadline_applies_only_to_its_caller() -> None:
    kept, hurried, patient = cache(), Worker(error=DeadlineExceeded(what="it")), eager()
    first = look_up(kept, hurried, "a")
    await under_way(hurried)
    others = [look_up(kept, patient, "a") for _ in range(3)]
    await asyncio.sleep(0)
    hurried.may_go.set()

    with pytest.raises(DeadlineExceeded):
        await first
    assert {lookup.values[0] for lookup in await asyncio.gather(*others)} == {value_of("a")}
    assert patient.asked == [["a"]]


async def test_no_caller_waits_past_its_own_deadline() -> None:
    """This holds for another caller's computation too, which continues."""
    kept, worker = cache(), Worker()
    first = look_up(kept, worker, "a")
    await under_way(worker)

    with pytest.raises(DeadlineExceeded):
        await kept.get(["a"], worker.compute, 0.01)

    worker.may_go.set()
    assert (await first).values == [value_of("a")]


async def test_an_uncacheable_value_is_returned() -> None:
    kept: Cache = SingleFlightCache(
        20, lambda _, value: len(value), CacheMetrics("test"), lambda value: "a" not in value[-1]
    )
    worker = eager()

    lookup = await kept.get(["a", "b", "x" * 20], worker.compute, TIMEOUT_SECONDS)

    assert lookup.values == [value_of("a"), value_of("b"), value_of("x" * 20)]
    assert set(kept.find(["a", "b", "x" * 20])) == {"b"}


async def test_metrics_tell_hits_misses_bytes_and_evictions() -> None:
    """Each as Prometheus would read it."""
    name = "test-metrics"
    kept: Cache = SingleFlightCache(25, lambda _, value: len(value), CacheMetrics(name))
    worker = eager()
    for keys in (["a", "b"], ["b", "a"], ["c"]):
        await kept.get(keys, worker.compute, TIMEOUT_SECONDS)
    kept.find(["a", "b"])

    assert {
        metric: REGISTRY.get_sample_value(f"tandem_cache_{metric}", {"cache": name})
        for metric in (
            "hits_total", "misses_total", "evictions_total", "bytes", "limit_bytes", "entry_count"
        )
    } == {
        "hits_total": 3, "misses_total": 3, "evictions_total": 1, "bytes": 20, "limit_bytes": 25,
        "entry_count": 2,
    }  # fmt: skip


@given(
    max_bytes=st.integers(1, 40),
    lookups=st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5), max_size=30),
)
def test_the_cache_keeps_the_most_recently_used(max_bytes: int, lookups: list[list[str]]) -> None:
    def size_of(key: str) -> int:
        return 1 + ord(key) % 9

    kept: Cache = SingleFlightCache(
        max_bytes, lambda key, _: size_of(key), CacheMetrics("test-model")
    )
    model: OrderedDict[str, int] = OrderedDict()

    async def run() -> None:
        for keys in lookups:
            lacking = [key for key in dict.fromkeys(keys) if key not in model]
            for key in dict.fromkeys(keys):
                if key in model:
                    model.move_to_end(key)
            for key in lacking:
                if size_of(key) <= max_bytes:
                    model[key] = size_of(key)
                    while sum(model.values()) > max_bytes:
                        model.popitem(last=False)

            lookup = await kept.get(keys, eager().compute, TIMEOUT_SECONDS)

            assert lookup.values == [value_of(key) for key in keys]
            assert lookup.miss_count == len(lacking)
            assert kept.used_bytes == sum(model.values()) <= max_bytes
            assert len(kept) == len(model)

    asyncio.run(run())
