"""Ingest streams keep order and pace, and leave nothing running when they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tandem import errors
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.orchestrator_svc.caller import (
    TIMEOUT_SECONDS,
    batch,
    reasons,
    refused,
    text_of,
)
from tests.support.orchestrator_svc.downstream import door, raising, stack


def stage_seconds(stage: str) -> float:
    """Returns the orchestrator's time in a stage so far."""
    name = "tandem_orchestrator_stage_duration_seconds_sum"
    return REGISTRY.get_sample_value(name, {"stage": stage}) or 0.0


async def until(condition: Callable[[], object]) -> None:
    """Waits for what other tasks bring about."""
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110 (the fakes have no events to wait for)
            await asyncio.sleep(0.01)


async def test_batches_are_answered_in_order() -> None:

    async def first_is_slow(request: object) -> None:
        if request.contents[0].text == "0":  # type: ignore[attr-defined]
            await asyncio.sleep(0.3)

    async with stack() as behind, door(behind) as stub:
        behind.encoder.before["EncodeContents"] = first_is_slow
        batches = [batch({f"item-{n}": str(n)}) for n in range(6)]

        answers = [each async for each in stub.IngestItems(iter(batches))]

    assert [answer.results[0].item_id for answer in answers] == [f"item-{n}" for n in range(6)]


async def test_a_later_batch_never_overtakes_an_earlier_one() -> None:
    """One id in every batch, the first of them slowest: the last one's text stays."""

    async def earlier_is_slower(request: object) -> None:
        await asyncio.sleep(0.3 - 0.1 * float(request.contents[0].text))  # type: ignore[attr-defined]

    async with stack() as behind, door(behind) as stub:
        behind.encoder.before["EncodeContents"] = earlier_is_slower
        batches = [batch({"same": str(n)}) for n in range(4)]

        answers = [each async for each in stub.IngestItems(iter(batches))]

        assert [reasons(answer) for answer in answers] == [[None]] * 4
        shard = behind.shards[behind.shard_map.owner("scenes", "same")]
        stored = [
            request.items[0].content.text  # type: ignore[attr-defined]
            for request in shard.requests("UpsertItems")
        ]
        assert stored == ["0", "1", "2", "3"]
        assert text_of(behind, "same") == "3"


async def test_a_batch_that_stored_nothing_lets_none_overtake_the_one_before() -> None:

    async def slow_failed_fast(request: object) -> None:
        text = request.contents[0].text  # type: ignore[attr-defined]
        if text == "1":
            await asyncio.sleep(0.4)
        if text == "2":
            raise errors.Overloaded(what="encodings")

    async with stack() as behind, door(behind) as stub:
        behind.encoder.before["EncodeContents"] = slow_failed_fast
        batches = [batch({"same": text}) for text in ("1", "2", "3")]

        answers = [each async for each in stub.IngestItems(iter(batches))]

        assert [reasons(answer) for answer in answers] == [[None], ["OVERLOADED"], [None]]
        assert text_of(behind, "same") == "3"


async def test_batches_are_encoded_side_by_side() -> None:
    """As many as the setting allows and no more, though more were sent."""
    together = most = 0
    all_allowed = asyncio.Barrier(3)

    async def count(request: object) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        async with asyncio.timeout(60):
            await all_allowed.wait()
        await asyncio.sleep(0.05)  # time enough for a fourth, were it let in
        together -= 1

    async with stack() as behind, door(behind, pending_batch_count=3) as stub:
        behind.encoder.before["EncodeContents"] = count
        batches = [batch({f"item-{n}": str(n)}) for n in range(9)]

        answers = [each async for each in stub.IngestItems(iter(batches))]

    assert len(answers) == 9
    assert most == 3


async def test_streams_share_the_encoders_turns() -> None:
    """The limit applies to all streams; a batch's time starts with its turn."""

    async def answers_of(stub: SearchServiceStub, stream: int) -> list[pb.IngestItemsResponse]:
        batches = [batch({f"item-{stream}-{n}": str(n)}) for n in range(4)]
        return [each async for each in stub.IngestItems(iter(batches))]

    async def check(factor: float) -> None:
        together = most = 0

        async def count(request: object) -> None:
            nonlocal together, most
            together += 1
            most = max(most, together)
            await asyncio.sleep(0.2 * factor)
            together -= 1

        # Of 16 batches, two at once, the last two wait for 1.4 s: longer than each has.
        waited_seconds = stage_seconds("ingest_wait")
        async with stack(batch_timeout_seconds=1.0 * factor, encode_batch_count=2) as behind:
            behind.encoder.before["EncodeContents"] = count
            async with door(behind) as stub:
                streams = await asyncio.gather(*(answers_of(stub, stream) for stream in range(4)))

        assert most == 2
        assert [reasons(answer) for answers in streams for answer in answers] == [[None]] * 16
        assert stage_seconds("ingest_wait") - waited_seconds > 5.6 * factor  # of 11.2

    await holds_with_longer_times(check)


async def test_a_fast_sender_is_held_back() -> None:
    """While nothing can be stored, only a bounded part of an endless stream is read."""
    gate = asyncio.Event()
    sent = 0

    async def closed(request: object) -> None:
        await gate.wait()

    # Large batches, so that gRPC's own windows hold few of them.
    words = "0 " + "word " * 200_000

    async def endless() -> AsyncIterator[pb.IngestItemsRequest]:
        nonlocal sent
        while True:
            yield batch({f"item-{sent}": words})
            sent += 1

    async with stack() as behind, door(behind, pending_batch_count=2) as stub:
        behind.encoder.before["EncodeContents"] = closed
        call = stub.IngestItems(endless())
        await until(lambda: len(behind.encoder.calls) == 2)
        held_at = -1
        while sent != held_at:
            held_at = sent
            assert held_at < 30
            await asyncio.sleep(0.5)

        assert len(behind.encoder.calls) == 2
        call.cancel()
        gate.set()


async def test_a_sender_may_read_nothing_until_it_has_sent_everything() -> None:
    """More batches than may be in flight, all written before the first answer is read."""
    async with stack() as behind, door(behind, pending_batch_count=2) as stub:
        call = stub.IngestItems(timeout=TIMEOUT_SECONDS)
        for n in range(12):
            await call.write(batch({f"item-{n}": str(n)}))
        await call.done_writing()

        answers = [each async for each in call]

    assert len(answers) == 12


async def test_items_that_fail_do_not_end_the_stream() -> None:
    """A full shard, an item without content, a duplicate id: each is reported, the rest stored."""
    async with stack() as behind, door(behind) as stub:
        behind.shards[1].before["UpsertItems"] = raising(errors.StoreFull(why="disk full"))
        here, there = behind.id_on(0), behind.id_on(1)
        twice = batch({here: "1"})
        twice.items.append(twice.items[0])
        twice.items.add(item_id="bare")

        first, second, third = [
            each
            async for each in stub.IngestItems(
                iter([batch({here: "0", there: "0"}), twice, batch({here: "5"})])
            )
        ]

        assert reasons(first) == [None, "STORE_FULL"]
        assert reasons(second) == ["ITEM_ID_DUPLICATE", None, "CONTENT_MISSING"]
        assert reasons(third) == [None]
        assert text_of(behind, here) == "5"


async def test_a_batch_refused_whole_ends_the_stream_after_those_before_it() -> None:
    """The first is answered and stored; nothing of the third is, in whatever order they ended."""

    async def slow(request: object) -> None:
        await asyncio.sleep(0.3 if request.contents[0].text == "1" else 0.0)  # type: ignore[attr-defined]

    async with stack() as behind, door(behind) as stub:
        behind.encoder.before["EncodeContents"] = slow
        batches = [batch({"a": "1"}), batch({"b": "2"}, index_id="Scenes"), batch({"c": "3"})]
        call = stub.IngestItems(iter(batches))

        first = await call.read()
        error = await refused(call.read())

        assert reasons(first) == [None]
        assert isinstance(error, errors.IndexIdInvalid)
        await asyncio.sleep(0.1)
        stored = {each for shard in behind.shards for each in shard.items.get("scenes", {})}
        assert stored == {"a"}


@pytest.mark.parametrize("count", [0, 65])
async def test_a_batch_of_an_invalid_size_ends_the_stream_by_name(count: int) -> None:
    async with stack() as behind, door(behind) as stub:
        call = stub.IngestItems(iter([batch({f"item-{n}": "0" for n in range(count)})]))

        assert isinstance(await refused(call.read()), errors.BatchSizeOutOfRange)


async def test_a_disconnected_sender_leaves_nothing_running() -> None:
    """Batches not yet stored are dropped, and the service keeps serving."""

    async def stall(request: object) -> None:
        await asyncio.sleep(30)

    async with stack() as behind, door(behind) as stub:
        # Connected from here on; a connection is watched by a task of the service's.
        assert [each async for each in stub.IngestItems(iter([batch({"b": "0"})]))]
        behind.encoder.calls.clear()
        before = len(asyncio.all_tasks())
        behind.encoder.before["EncodeContents"] = stall
        call = stub.IngestItems()
        for n in range(3):
            await call.write(batch({f"item-{n}": str(n)}))
        await until(lambda: len(behind.encoder.calls) == 3)

        call.cancel()

        await until(lambda: len(asyncio.all_tasks()) <= before)
        del behind.encoder.before["EncodeContents"]
        assert [each async for each in stub.IngestItems(iter([batch({"a": "0"})]))]
        assert text_of(behind, "a") == "0"


async def test_a_sender_may_disconnect_while_answers_wait() -> None:
    """Answers are left unread: the stream is closed and the next caller is served."""
    async with stack() as behind, door(behind) as stub:
        for _ in range(10):
            call = stub.IngestItems()
            for n in range(4):
                await call.write(batch({f"item-{n}": str(n)}))
            await call.read()
            call.cancel()
        await asyncio.sleep(0.2)

        assert [each async for each in stub.IngestItems(iter([batch({"a": "0"})]))]


async def test_request_ids_reach_the_shards() -> None:
    """Of batches and of removals; one that is too long ends the stream."""
    async with stack(shard_count=1) as behind, door(behind) as stub:
        for _ in range(2):
            request = batch({"a": "0"})
            request.request_id = "first"
            [response] = [each async for each in stub.IngestItems(iter([request]))]
            assert reasons(response) == [None]
        removal = pb.RemoveItemsRequest(index_id="scenes", item_ids=["a"], request_id="second")
        counts = [(await stub.RemoveItems(removal, timeout=60)).removed_count for _ in range(2)]

        assert counts == [1, 1]
        assert behind.shards[0].sequence == 2
        request.request_id = "x" * 65
        error = await refused(stub.IngestItems(iter([request])).read())
        assert isinstance(error, errors.RequestIdInvalid)
