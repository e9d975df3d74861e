"""Streams of a caller that sends nothing, reads nothing or is gone: none keeps others out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest

from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tandem.chassis.calls.channels import CHANNEL_OPTIONS, SERVER_OPTIONS
from tandem.chassis.capacity.admission import DEFAULT_LIMITS, LEAST_BYTES_A_SECOND
from tandem.client.access import CHANNEL_OPTIONS as CLIENT_OPTIONS
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.chassis.open_door import (
    INGEST,
    SEARCH,
    STREAM_SEARCH,
    address,
    connection,
    raw,
    refusal,
)
from tests.support.chassis.raw_http2 import (
    SETTINGS,
    call_frames,
    ended_streams,
    frame,
    opened,
)
from tests.support.chassis.scripted_service import sample, until

IDLE_SECONDS = 0.4
# Or the client takes all answers into its own buffers, where it is fast.
NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    """Knows two callers."""
    path = tmp_path / "tokens.toml"
    path.write_text(
        "".join(
            f'[tokens.{name}]\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
            'scopes = ["search", "write"]\nindexes = ["*"]\n'
            for name in ("one", "other")
        )
    )
    return Guard(TokenFile(path))


def bearer(name: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {name}"),)


def client_options(changed: dict[str, int]) -> list[tuple[str, int | str]]:
    """Returns the client's options, without its health checks."""
    options = dict(CLIENT_OPTIONS) | changed
    del options["grpc.service_config"]
    return [*options.items()]


async def answered(to: grpc.aio.Channel, name: str) -> None:
    """Ingests one batch, and so finds a place."""
    stream = SearchServiceStub(to).IngestItems(metadata=bearer(name), timeout=60)
    await stream.write(pb.IngestItemsRequest())
    assert await stream.read() is not grpc.aio.EOF
    await stream.done_writing()
    assert await stream.code() is grpc.StatusCode.OK


async def test_one_callers_streams_do_not_keep_another_out(guard: Guard) -> None:
    limits = replace(DEFAULT_LIMITS, max_stream_count=2)
    async with (
        address(guard, limits) as to,
        connection(to) as channel,
        connection(to) as second,
    ):
        held = [raw(each, INGEST)(metadata=bearer("one")) for each in (channel, second)]
        await until(lambda: sample("tandem_rpc_inflight_count", service="door") == 2)
        assert await refusal(raw(second, INGEST)(metadata=bearer("one"))) == "OVERLOADED"
        await answered(channel, "other")
        for each in held:
            each.cancel()
        await until(lambda: sample("tandem_rpc_inflight_count", service="door") == 0)
        await answered(second, "one")


async def test_a_stream_that_sends_nothing_ends_by_name(guard: Guard) -> None:
    async def check(factor: float) -> None:
        idle_seconds = IDLE_SECONDS * factor
        limits = replace(DEFAULT_LIMITS, max_idle_seconds=idle_seconds)
        async with address(guard, limits) as to, connection(to) as channel:
            stream = raw(channel, INGEST)(metadata=bearer("one"))
            assert await refusal(stream) == "DEADLINE_EXCEEDED"
            stream = raw(channel, INGEST)(metadata=bearer("one"))
            await stream.write(b"")
            assert await stream.read() is not grpc.aio.EOF
            assert await refusal(stream) == "DEADLINE_EXCEEDED"
            assert f"a wait of {idle_seconds:.1f} s: no message came" in await stream.details()

    await holds_with_longer_times(check)


async def test_a_call_whose_answer_is_not_read_ends_in_grpc_too() -> None:
    """Otherwise it would stay there, with its answer, for as long as its connection."""

    def ended(port: int) -> set[int]:
        no_window = frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0")
        calls = b"".join(
            call_frames(stream, path.encode())
            # grpc.aio keeps the last call until another one comes.
            for stream, path in ((1, SEARCH), (3, STREAM_SEARCH), (5, SEARCH))
        )
        with opened(port, timeout_seconds=60) as connection:
            connection.sendall(no_window + calls)
            return ended_streams(connection, 2, timeout_seconds=60)

    limits = replace(DEFAULT_LIMITS, max_unread_seconds=IDLE_SECONDS)
    async with address(limits=limits) as to:
        assert await asyncio.to_thread(ended, int(to.rpartition(":")[2])) >= {1, 3}


async def large(
    request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
) -> pb.SearchItemsResponse:
    """Answers with more than a window takes."""
    return pb.SearchItemsResponse(next_cursor=bytes(200_000))


async def test_answers_that_are_not_read_hold_no_place_of_a_search(guard: Guard) -> None:
    """As many streams as there are places: their caller too may search at once."""
    limits = replace(DEFAULT_LIMITS, max_inflight_count=2)
    async with (
        address(guard, limits, large) as to,
        grpc.aio.insecure_channel(to, options=NARROW) as silent,
        connection(to) as channel,
    ):
        unread = [raw(silent, STREAM_SEARCH)(metadata=bearer("one")) for _ in range(2)]
        for each in unread:
            await each.write(b"")
        await until(lambda: sample("tandem_rpc_answer_bytes", service="door") > 600_000)
        for name in ("one", "other"):
            search = SearchServiceStub(channel).SearchItems
            await search(pb.SearchItemsRequest(), metadata=bearer(name), timeout=60)
        assert not any(each.done() for each in unread), "positive control: they still wait"
        for each in unread:
            each.cancel()


async def test_answers_that_are_not_read_hold_no_batch_of_an_ingest(guard: Guard) -> None:
    limits = replace(DEFAULT_LIMITS, max_stream_message_count=2)
    batch = pb.IngestItemsRequest(items=[{"item_id": "x" * 200_000}]).SerializeToString()
    async with (
        address(guard, limits) as to,
        grpc.aio.insecure_channel(to, options=NARROW) as silent,
        connection(to) as channel,
    ):
        unread = raw(silent, INGEST)(iter([batch] * 4), metadata=bearer("one"))
        await until(lambda: sample("tandem_rpc_answer_bytes", service="door") > 600_000)
        await asyncio.wait_for(answered(channel, "other"), 60)
        assert not unread.done(), "positive control: it still waits"
        unread.cancel()


async def test_unread_answers_are_bounded_in_number(guard: Guard) -> None:
    limits = replace(DEFAULT_LIMITS, max_answer_count=4)
    async with (
        address(guard, limits, large) as to,
        grpc.aio.insecure_channel(to, options=NARROW) as silent,
        connection(to) as channel,
    ):
        unread = [raw(silent, SEARCH)(metadata=bearer("one")) for _ in range(4)]
        for each in unread:
            await each.write(b"")
        await until(lambda: sample("tandem_rpc_answer_bytes", service="door") > 800_000)
        assert await refusal(raw(silent, SEARCH)(iter([b""]), metadata=bearer("one"))) == (
            "OVERLOADED"
        )
        search = SearchServiceStub(channel).SearchItems
        await search(pb.SearchItemsRequest(), metadata=bearer("other"), timeout=60)
        for each in unread:
            each.cancel()


async def test_a_stream_with_a_slow_batch_does_not_end() -> None:
    idle_seconds = 0.0

    async def long(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        await asyncio.sleep(4 * idle_seconds)
        return pb.SearchItemsResponse()

    async def check(factor: float) -> None:
        nonlocal idle_seconds
        idle_seconds = IDLE_SECONDS * factor
        limits = replace(DEFAULT_LIMITS, max_idle_seconds=idle_seconds)
        async with address(limits=limits, search=long) as to, connection(to) as channel:
            await answered(channel, "nobody")

    await holds_with_longer_times(check)


@asynccontextmanager
async def line(to: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Carries connections to a server, until the event is set: then it says nothing any more."""
    dead = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if dead.is_set():
                await asyncio.Event().wait()
            writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = to.split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writers.extend((writer, far_writer))
        for pair in ((reader, far_writer), (far_reader, writer)):
            tasks.add(asyncio.create_task(carry(*pair)))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", dead
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


async def test_a_dead_connection_is_found_from_both_sides() -> None:
    for options in (CHANNEL_OPTIONS, CLIENT_OPTIONS, SERVER_OPTIONS):
        kept: dict[str, Any] = dict(options)
        assert kept["grpc.keepalive_time_ms"] + kept["grpc.keepalive_timeout_ms"] <= 25_000
        assert kept["grpc.http2.ping_timeout_ms"] <= 25_000
    quick = dict.fromkeys(
        ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"), 500
    )
    quick_server = [*(dict(SERVER_OPTIONS) | quick).items()]
    quick_client = client_options(quick)
    async with (
        address(options=quick_server) as to,
        line(to) as (through, dead),
        grpc.aio.insecure_channel(through, options=quick_client) as channel,
    ):
        stream = raw(channel, INGEST)()
        await stream.write(b"")
        await stream.read()
        dead.set()
        assert await refusal(stream) == "UNAVAILABLE"
        await until(
            lambda: sample("tandem_rpc_inflight_count", service="door") == 0, timeout_seconds=60
        )


async def test_unread_answers_are_bounded() -> None:
    async def larger(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        return pb.SearchItemsResponse(next_cursor=bytes(8_000_000))

    def held_bytes() -> float:
        return sample("tandem_rpc_answer_bytes", service="door")

    async def check(factor: float) -> None:
        # 2 s of an answer of 8 MB, at the least rate.
        unread_seconds = 2.0 * factor - 8_000_000 / LEAST_BYTES_A_SECOND
        limits = replace(
            DEFAULT_LIMITS, max_answer_bytes=15_000_000, max_unread_seconds=unread_seconds
        )
        async with (
            address(limits=limits, search=larger) as to,
            grpc.aio.insecure_channel(
                to, options=(*NARROW, ("grpc.max_receive_message_length", -1))
            ) as channel,
        ):
            unread = raw(channel, SEARCH)()
            await unread.write(b"")
            await until(lambda: held_bytes() > 8_000_000)
            assert await refusal(raw(channel, SEARCH)(iter([b""]))) == "OVERLOADED"
            await until(lambda: held_bytes() == 0, timeout_seconds=60)
            await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)
            await until(lambda: held_bytes() == 0)
            unread.cancel()

    await holds_with_longer_times(check)
