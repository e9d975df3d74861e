"""Lookups that overlap, fail, run out of time and leave, in any order."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tandem.chassis.capacity.cache_metrics import CacheMetrics
from tandem.chassis.capacity.single_flight_cache import Computation, Lookup, SingleFlightCache
from tandem.errors import DeadlineExceeded, ModelUnavailable

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 60


def value_of(key: str) -> str:
    return f"value of {key}"


class Interleaving:
    """Lookups, computations and cancellations in an order that a test chooses."""

    def __init__(self) -> None:
        self.cache: SingleFlightCache[str, str, int] = SingleFlightCache(
            MAX_BYTES, lambda _, value: len(value), CacheMetrics("test-interleavings")
        )
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
def test_in_every_interleaving_lookups_get_their_values_and_work_is_reported_once(
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
        # What only such lookups waited for that left as it ended is not reported.
        assert reported <= scene.computed_count
        if not cancelled and all(isinstance(outcome, Lookup) for outcome in outcomes):
            assert reported == scene.computed_count
        assert not scene.under_way
        assert scene.cache.used_bytes <= MAX_BYTES

    asyncio.run(run())
