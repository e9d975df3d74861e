"""Kept values are the right ones, within the limit, and computed once however many ask."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.chassis.cache_metrics import CacheMetrics
from tandem.chassis.metrics import REGISTRY
from tandem.chassis.single_flight_cache import Computation, Lookup, SingleFlightCache
from tandem.errors import DeadlineExceeded, ModelUnavailable

TIMEOUT_SECONDS = 5.0
Cache = SingleFlightCache[str, str, int]


def cache(max_bytes: int = 1000) -> Cache:
    """Returns a cache whose entries take as many bytes as their values have letters."""
    return SingleFlightCache(max_bytes, lambda _, value: len(value), CacheMetrics("test"))


@dataclass(slots=True)
class Worker:
    """Computes a value from a key, once it may, and remembers what it was asked for."""

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


async def test_what_is_kept_is_not_computed_again() -> None:
    """Of a batch, those that are lacking are computed in one call, each once."""
    kept, worker = cache(), eager()
    await kept.get(["a", "b"], worker.compute, TIMEOUT_SECONDS)

    lookup = await kept.get(["c", "a", "d", "c"], worker.compute, TIMEOUT_SECONDS)

    assert lookup.values == [value_of(key) for key in ("c", "a", "d", "c")]
    assert (lookup.hit_count, lookup.miss_count, lookup.reports) == (2, 2, [2])
    assert worker.asked == [["a", "b"], ["c", "d"]]
    assert kept.find(["d", "e"]) == {"d": value_of("d")}


async def test_fifty_at_once_share_one_computation() -> None:
    """It is reported to one of them; the others had hits."""
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


async def test_who_leaves_does_not_take_the_work_away() -> None:
    """Not even who began it; what it took is then reported to one who stayed."""
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


async def test_work_that_nobody_waits_for_is_cancelled() -> None:
    """And the next who asks begins anew, though the old task may not have ended yet."""
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


async def test_a_failure_is_told_to_all_and_not_kept() -> None:
    """Who waits for it tries once more, together; who comes later tries again."""
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
    """Who waited for the good half of a batch gets that."""
    kept, poisoned, good = cache(), Worker(error=ModelUnavailable(model="m", why="NaN")), eager()
    first = look_up(kept, poisoned, "a", "poison")
    await under_way(poisoned)
    second = look_up(kept, good, "a")
    await asyncio.sleep(0)
    poisoned.may_go.set()

    with pytest.raises(ModelUnavailable):
        await first
    assert (await second).values == [value_of("a")]


async def test_a_deadline_is_its_owners_alone() -> None:
    """Who has more time begins anew where the first ran out of it."""
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


async def test_nobody_waits_longer_than_their_own_time() -> None:
    """For another's computation either, which goes on."""
    kept, worker = cache(), Worker()
    first = look_up(kept, worker, "a")
    await under_way(worker)

    with pytest.raises(DeadlineExceeded):
        await kept.get(["a"], worker.compute, 0.01)

    worker.may_go.set()
    assert (await first).values == [value_of("a")]


async def test_what_is_not_worth_keeping_is_returned_all_the_same() -> None:
    """As is what alone is larger than the cache."""
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
def test_the_cache_holds_what_was_used_last(max_bytes: int, lookups: list[list[str]]) -> None:
    """One lookup after another: it equals a plain list of what was used, oldest first."""

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


class Interleaving:
    """Lookups, computations and cancellations in an order that a test chooses."""

    def __init__(self) -> None:
        self.cache = cache(60)
        self.lookups: list[asyncio.Task[Lookup[str, int]]] = []
        self.computations: list[asyncio.Future[None]] = []
        self.under_way: list[str] = []
        self.computed_count = 0

    async def compute(self, keys: Sequence[str]) -> Computation[str, int]:
        assert not set(keys) & set(self.under_way), "a key is computed twice at once"
        self.under_way.extend(keys)
        verdict: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.computations.append(verdict)
        try:
            await verdict
        finally:
            self.computations.remove(verdict)
            for key in keys:
                self.under_way.remove(key)
        self.computed_count += len(keys)
        return Computation([value_of(key) for key in keys], len(keys))

    def begin(self, keys: Sequence[str]) -> None:
        self.lookups.append(
            asyncio.create_task(self.cache.get(keys, self.compute, TIMEOUT_SECONDS))
        )

    def finish(self, number: int, error: Exception | None) -> None:
        ready = [verdict for verdict in self.computations if not verdict.done()]
        if ready:
            verdict = ready[number % len(ready)]
            verdict.set_exception(error) if error else verdict.set_result(None)

    def cancel(self, number: int) -> None:
        if self.lookups:
            self.lookups[number % len(self.lookups)].cancel()


KEYS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("begin"), KEYS),
    st.tuples(st.just("finish"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("run out of time"), st.integers(0, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(1, 4)),
)


@given(st.lists(STEPS, max_size=40))
def test_however_lookups_meet_each_gets_its_values_and_all_work_is_reported_once(
    steps: list[tuple[str, Sequence[str] | int]],
) -> None:
    """Values are right, no key is computed twice at once, nothing hangs, and reports add up."""

    async def run() -> None:
        scene = Interleaving()
        asked: list[Sequence[str]] = []
        cancelled = False
        for name, argument in steps:
            match name, argument:
                case "begin", list() as begun:
                    asked.append(begun)
                    scene.begin(begun)
                case "finish", int() as number:
                    scene.finish(number, None)
                case "fail", int() as number:
                    scene.finish(number, ModelUnavailable(model="m", why="gone"))
                case "run out of time", int() as number:
                    scene.finish(number, DeadlineExceeded(what="it"))
                case "cancel", int() as number:
                    cancelled = True
                    scene.cancel(number)
                case "wait", int() as count:
                    for _ in range(count):
                        await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not all(lookup.done() for lookup in scene.lookups):
                scene.finish(0, None)
                await asyncio.sleep(0)

        outcomes = await asyncio.gather(*scene.lookups, return_exceptions=True)
        reported = 0
        for keys, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, Lookup):
                assert outcome.values == [value_of(key) for key in keys]
                reported += sum(outcome.reports)
            else:
                assert isinstance(
                    outcome, ModelUnavailable | DeadlineExceeded | asyncio.CancelledError
                )
        # What only such lookups waited for that left as it ended is reported to nobody.
        assert reported <= scene.computed_count
        if not cancelled and all(isinstance(outcome, Lookup) for outcome in outcomes):
            assert reported == scene.computed_count
        assert not scene.under_way
        assert scene.cache.used_bytes <= 60

    asyncio.run(run())
