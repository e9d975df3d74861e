"""Storms of searches with short deadlines: none is late, and none works past its deadline.

In short with every change, in full with TANDEM_DEADLINE_RUNS=full (2,000 and 1,000 searches).
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from tandem import errors
from tandem.chassis.telemetry.request_id import REQUEST_ID_KEY, current_request_id
from tandem.search.settings import SEARCH_DEFAULTS
from tandem.v1 import content_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.orchestrator_svc.downstream import Stack, door, raising, stack

IS_FULL = os.environ.get("TANDEM_DEADLINE_RUNS") == "full"
SEED = int(os.environ.get("TANDEM_DEADLINE_SEED", "7"))

NAMES = [f"image-{number:02}" for number in range(30)]
STALL_SECONDS = 0.02
LATE_SECONDS = 0.05
"""What a caller may wait past its deadline."""
FACTORS = (1,) if IS_FULL else (1, 4, 16)
"""In full, deadlines are as they are said."""
MOST_TIMES = 2
"""A machine that often stands still gets so many times as many searches, for enough to judge by."""


def searches_of(factor: float, count: int, full_count: int) -> int:
    """Returns how many searches to make: fewer of those that take longer."""
    return full_count if IS_FULL else max(40, round(count / factor))


@asynccontextmanager
async def serving(
    trial_seconds: float = 1.0, **set_to: Any
) -> AsyncIterator[tuple[Stack, SearchServiceStub]]:
    """Thirty pictures on two shards, behind one door."""
    async with (
        stack(trial_seconds=trial_seconds, **set_to) as behind,
        door(behind) as stub,
    ):
        items = [
            index_pb.Item(item_id=name, content=content_pb2.Content(image=str(n).encode()))
            for n, name in enumerate(NAMES)
        ]
        request = pb.IngestItemsRequest(index_id="scenes", items=items)
        assert [each async for each in stub.IngestItems(iter([request]))]
        for shard in behind.shards:
            shard.logits.update({name: float(n) for n, name in enumerate(NAMES)})
            shard.pair_seconds = 0.001
        yield behind, stub


def search() -> pb.SearchItemsRequest:
    """Returns a search for pictures near 0 degrees."""
    return pb.SearchItemsRequest(
        index_id="scenes", query=content_pb2.Content(text="0"), return_n=20
    )


@dataclass
class Stalls:
    """When this process's loop did not come round: the machine had other things to do."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    least_seconds: float = STALL_SECONDS
    """From when on it counts."""

    @classmethod
    @asynccontextmanager
    async def watched(cls, factor: float) -> AsyncIterator["Stalls"]:
        """Watches while the body runs, where times are so many times as long."""
        stalls = cls(least_seconds=STALL_SECONDS * factor)

        async def watch() -> None:
            while True:
                start_time = time.monotonic()
                await asyncio.sleep(0.001)
                now = time.monotonic()
                if now - start_time > stalls.least_seconds:
                    stalls.spans.append((start_time, now))

        watching = asyncio.create_task(watch())
        try:
            yield stalls
        finally:
            watching.cancel()

    @property
    def longest_seconds(self) -> float:
        """Of the longest, and not less than what counts as one."""
        return max((end - start for start, end in self.spans), default=self.least_seconds)

    def met(self, start_time: float, end_time: float) -> bool:
        """Returns whether there was one in that time."""
        return any(start < end_time and end > start_time for start, end in self.spans)


@dataclass
class Storm:
    """What became of the searches."""

    answers: list[pb.SearchItemsResponse] = field(default_factory=list)
    errors: list[grpc.aio.AioRpcError] = field(default_factory=list)
    spans: list[tuple[float, float, float, bool]] = field(default_factory=list)
    """Of each search its start, end and deadline, and whether it was answered."""

    async def search(
        self, stub: SearchServiceStub, seconds: float, request_id: str = "storm"
    ) -> None:
        """Makes one search, in a deadline."""
        start_time = time.monotonic()
        is_answered = True
        try:
            self.answers.append(
                await stub.SearchItems(
                    search(), timeout=seconds, metadata=((REQUEST_ID_KEY, request_id),)
                )
            )
        except grpc.aio.AioRpcError as error:
            self.errors.append(error)
            is_answered = False
        self.spans.append((start_time, time.monotonic(), start_time + seconds, is_answered))

    @property
    def whole_count(self) -> int:
        """Answers whose every candidate was read."""
        return sum(each.rerank.stop == pb.RERANK_STOP_COMPLETE for each in self.answers)

    def without(self, stalls: Stalls) -> list[tuple[float, float, float, bool]]:
        """Returns the spans that met no stall."""
        return [span for span in self.spans if not stalls.met(span[0], span[1])]


class Troubled:
    """A cross-encoder that is well, gone, hanging, slow, or out of its mind, on request."""

    def __init__(self, seed: int, factor: float) -> None:
        self.random = random.Random(seed)
        self.trouble = "well"
        self.factor = factor

    async def __call__(self, request: object) -> None:
        """Does what the trouble does."""
        match self.trouble:
            case "gone":
                await raising(errors.ServiceUnavailable(service="rerank", why="killed"))(request)
            case "stopped":
                await asyncio.sleep(300)
            case "slow":
                await asyncio.sleep(self.factor * self.random.uniform(0.05, 0.6))
            case "nonsense":
                await raising(errors.ModelOutputInvalid(model="joint", why="NaN"))(request)

    async def change(self, until: asyncio.Event) -> None:
        """Changes at random until the end; at first in turn, so that a short run has all."""
        kinds = ["well", "stopped", "gone", "well", "slow", "nonsense", "well"]
        turns = iter(kinds)
        while not until.is_set():
            self.trouble = next(turns, None) or self.random.choice(kinds)
            try:
                async with asyncio.timeout(self.factor * self.random.uniform(0.2, 1.0)):
                    await until.wait()
            except TimeoutError:
                continue


@pytest.mark.timeout(900)
async def test_searches_are_answered_in_time_with_a_failing_cross_encoder() -> None:
    """At a deadline of 500 ms at least 99 % are OK, degraded ones are flagged, none is late."""
    await holds_with_longer_times(check_storm, factors=FACTORS)


async def check_storm(factor: float) -> None:
    """Where all times are so many times as long."""
    count, at_once = searches_of(factor, 250, 2_000), 8
    trouble = Troubled(SEED, factor)
    storm = Storm()
    chunk_seconds = factor * SEARCH_DEFAULTS.rerank_chunk_seconds
    async with serving(factor, rerank_chunk_seconds=chunk_seconds) as (behind, stub):
        for shard in behind.shards:
            shard.before["ScoreCandidates"] = trouble
            shard.pair_seconds *= factor
        ended = asyncio.Event()
        changing = asyncio.create_task(trouble.change(ended))
        left = iter(range(MOST_TIMES * count))

        def is_enough(stalls: Stalls) -> bool:
            return len(storm.without(stalls)) >= count / 4 and storm.whole_count > 0.05 * count

        async with Stalls.watched(factor) as stalls:

            async def caller() -> None:
                for number in left:
                    if number >= count and is_enough(stalls):
                        return
                    await storm.search(stub, 0.5 * factor)
                    await asyncio.sleep(trouble.random.uniform(0, 0.2))

            await asyncio.gather(*(caller() for _ in range(at_once)))
        ended.set()
        await changing

    # A machine that stands still for part of a search is not a fault of the search's.
    fair = storm.without(stalls)
    assert len(fair) >= count / 4
    answered_count = sum(is_answered for *_, is_answered in fair)
    latest_seconds = max(end_time - due_time for _, end_time, due_time, _ in fair)
    print(
        f"{len(storm.answers)} of {len(storm.spans)} OK; {answered_count} of the {len(fair)} that "
        f"met no stall, the latest of them {latest_seconds:.3f} s after its deadline"
    )
    assert answered_count >= 0.99 * len(fair), [error.details() for error in storm.errors]
    assert latest_seconds <= LATE_SECONDS * factor
    for answer in storm.answers:
        depth = answer.rerank.reranked_depth
        is_whole = answer.rerank.stop == pb.RERANK_STOP_COMPLETE
        flags = set(answer.degradations)
        if answer.coverage.missing_shards:  # it was late: this machine had other things to do
            flags.remove(pb.DEGRADATION_SHARDS_MISSING)
        else:
            # The far ones first among those that were read, then the others as retrieved.
            names = [item.item_id for item in answer.items]
            assert names == [*reversed(NAMES[:depth]), *NAMES[depth:20]]
        less = pb.DEGRADATION_RERANK_PARTIAL if depth else pb.DEGRADATION_RERANK_SKIPPED
        assert flags == (set() if is_whole else {less})
    # The storm was one: neither always well nor always ill.
    assert storm.whole_count > 0.05 * count
    assert storm.whole_count < 0.95 * len(storm.spans)


class Work:
    """Some seconds of it, noting for whom it was begun, when, and how much is in progress."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun: list[tuple[str, float]] = []
        self.inflight_count = 0

    async def __call__(self, request: object) -> None:
        """Works."""
        self.begun.append((current_request_id(), time.monotonic()))
        self.inflight_count += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.inflight_count -= 1


@pytest.mark.parametrize("method", ["EncodeContents", "SearchEmbeddings", "ScoreCandidates"])
async def test_nothing_is_begun_for_a_search_that_has_expired(method: str) -> None:
    """Deadlines of 50 to 300 ms against two seconds of work in one of the stages: no downstream
    call starts after its search's deadline, and soon after the last nothing is running.
    """
    await holds_with_longer_times(
        lambda factor: check_nothing_is_begun(method, factor), factors=FACTORS
    )


async def check_nothing_is_begun(method: str, factor: float) -> None:
    """Where all times are so many times as long."""
    count = searches_of(factor, 150, 1_000)
    deadlines = random.Random(SEED)
    storm, work = Storm(), Work(2.0 * factor)
    end_times: dict[str, float] = {}
    # What is slow is asked again and again: neither breaker nor pace keeps a call back.
    async with serving(
        trial_seconds=0.0,
        breaker_consecutive_count=MOST_TIMES * count,
        breaker_failure_share=1.1,
    ) as (behind, stub):
        for service in (behind.encoder, *behind.shards):
            service.before[method] = work

        async def one(number: int) -> None:
            seconds = factor * deadlines.uniform(0.05, 0.3)
            end_times[f"storm-{number}"] = time.monotonic() + seconds
            await storm.search(stub, seconds, f"storm-{number}")

        async with Stalls.watched(factor) as stalls:
            for start in range(0, MOST_TIMES * count, 10):
                if start >= count and len(work.begun) >= count / 2:
                    break
                await asyncio.gather(*(one(start + number) for number in range(10)))
            last_time = time.monotonic()
            while work.inflight_count and time.monotonic() < last_time + 2.0 * factor:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            seconds_to_idle = time.monotonic() - last_time

    assert len(work.begun) >= count / 2
    # A call that was on its way while the machine did other things begins by so much later.
    for request_id, begin_time in work.begun:
        assert begin_time <= end_times[request_id] + stalls.longest_seconds
    assert seconds_to_idle <= 0.2 * factor + stalls.longest_seconds
    assert len(storm.answers) + len(storm.errors) == len(end_times)
    if method == "ScoreCandidates":
        assert len(storm.answers) >= count / 2


# A control of the tests, not of the product.
@pytest.mark.slow
async def test_continued_work_would_be_noticed() -> None:
    """The positive control: work that is not cancelled is still running."""

    async def check(factor: float) -> None:
        work = Work(2.0 * factor)
        async with serving() as (behind, stub):

            async def stubborn(request: object) -> None:
                await asyncio.shield(asyncio.create_task(work(request)))

            behind.encoder.before["EncodeContents"] = stubborn
            storm = Storm()
            await storm.search(stub, 0.1 * factor)
            await asyncio.sleep(0.3 * factor)

            assert storm.errors
            assert work.inflight_count == 1
            async with asyncio.timeout(90):
                while work.inflight_count:  # noqa: ASYNC110 (the work has no event to wait for)
                    await asyncio.sleep(0.01)

    await holds_with_longer_times(check)
