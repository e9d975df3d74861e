"""interceptors.slow_messages: an unfinished message of a stranger is given up as memory grows."""

from __future__ import annotations

import asyncio
from typing import cast

import grpc
import pytest

from tandem.chassis.interceptors.slow_messages import SlowMessages


class _Unfinished:
    """A call whose message never comes whole, as gRPC shows it: its read does not end."""

    async def read(self) -> bytes:
        """Waits."""
        await asyncio.Event().wait()
        return b""


UNFINISHED = cast("grpc.aio.ServicerContext", _Unfinished())


async def test_an_unfinished_message_is_dropped_as_the_process_grows() -> None:
    """Long before its own time, which the test would not live to see."""
    messages = SlowMessages(max_grown_bytes=16 << 20)
    reading = asyncio.ensure_future(messages.read(UNFINISHED, 600.0))
    await asyncio.sleep(0)
    held = b"\1" * (64 << 20)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reading, 60)
    assert held


async def test_an_unfinished_message_gets_its_time_while_memory_is_stable() -> None:
    """The control: what makes the other end early is the growth."""
    loop = asyncio.get_running_loop()
    start_time = loop.time()
    with pytest.raises(TimeoutError):
        await SlowMessages(max_grown_bytes=1 << 40).read(UNFINISHED, 0.3)
    assert loop.time() - start_time >= 0.3
