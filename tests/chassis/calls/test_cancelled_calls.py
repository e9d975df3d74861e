"""calls.channels.call: what is left of calls that their caller gave up."""

import asyncio
import ctypes
import gc
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc
import pytest

from tandem.chassis.calls.channels import call
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.scripted_service import scripted_service

CALL_COUNT = 400


class _Blocks(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        *((f"other_{number}", ctypes.c_size_t) for number in range(7)),
        ("uordblks", ctypes.c_size_t),
        *((f"other_{number}", ctypes.c_size_t) for number in range(7, 9)),
    ]


def bytes_in_use() -> int:
    """Returns what this process has taken by malloc() and not freed.

    Garbage of tests before is freed first: if some went between two readings, what it held would
    hide what calls leave.
    """
    gc.collect()
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Blocks
    return int(mallinfo2().uordblks)


async def by_call(method: Callable[..., Awaitable[object]]) -> None:
    """As our services call each other."""
    await call(method, pb.SearchItemsRequest(), service="scripted", timeout_seconds=30)


async def plainly(method: Callable[..., Awaitable[object]]) -> None:
    """As anybody would."""
    await method(pb.SearchItemsRequest(), timeout=60)


async def bytes_left(
    ask: Callable[[Callable[..., Awaitable[object]]], Awaitable[None]], cancelled: Counter[str]
) -> float:
    """Returns how many bytes stay for each cancelled call, which the peer had in hand."""
    began = asyncio.Event()

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled["at the peer"] += 1
            raise
        return pb.SearchItemsResponse()

    async with scripted_service(search) as channel:
        stub = SearchServiceStub(channel)

        async def give_up(count: int) -> int:
            for _ in range(count):
                began.clear()
                asking = asyncio.ensure_future(ask(stub.SearchItems))
                await began.wait()
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
            await asyncio.sleep(0.2)
            return bytes_in_use()

        before = await give_up(100)
        return (await give_up(CALL_COUNT) - before) / CALL_COUNT


async def test_a_cancelled_call_leaves_nothing() -> None:
    """The control is a plain await of grpc.aio's, of whose calls each leaves about a kilobyte.

    Where the control fails, grpc.aio has been fixed, and call() can await plainly.
    """
    cancelled = Counter[str]()

    left = await bytes_left(by_call, cancelled)
    left_by_control = await bytes_left(plainly, cancelled)

    assert left < 100
    assert left_by_control > 300
    # And the peer was notified.
    assert cancelled["at the peer"] >= CALL_COUNT
