"""Gives up a call to a process that hangs, long before the call's deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.calls.channels import call
from tandem.chassis.health.health import LIVENESS
from tandem.errors import DeadlineExceeded, TandemError

Response = TypeVar("Response")

# A call that takes longer has its peer asked whether it lives, and again after each such time.
_SLOW_SECONDS = 0.5
# A process that does not say so within this time hangs: less, and one that copies large tensors on
# a busy machine would seem to. gRPC's own pings take 3 to 5 s to tell.
_LIVE_SECONDS = 1.5
# Together half of a call's time at most. A call too short for that ends by its own deadline.
_SLOW_SHARE, _LIVE_SHARE = 0.125, 0.375
_LEAST_CALL_SECONDS = 1.0


class Peer:
    """Calls the process behind a channel, and tells one that hangs from one that is slow.

    Only the slow one answers health calls meanwhile. Of several behind one name none seems to hang
    unless two do.
    """

    def __init__(self, channel: grpc.aio.Channel, service: str) -> None:
        self._health = health_pb2_grpc.HealthStub(channel)
        self._service = service

    async def call(
        self,
        method: Callable[..., Awaitable[Response]],
        request: object,
        timeout_seconds: float,
    ) -> Response:
        """Returns the response, or raises a TandemError, as `call` does.

        Raises DeadlineExceeded after half of the time, and at most 2 s, if the process hangs.
        """
        calling = call(method, request, service=self._service, timeout_seconds=timeout_seconds)
        if timeout_seconds < _LEAST_CALL_SECONDS:
            return await calling
        slow_seconds = min(_SLOW_SECONDS, _SLOW_SHARE * timeout_seconds)
        live_seconds = min(_LIVE_SECONDS, _LIVE_SHARE * timeout_seconds)
        watches: list[asyncio.Task[None]] = []

        async def watch() -> None:
            # Two at once go to two processes, where several are behind the name: the slow one may
            # be another than the one that hangs.
            while True in await asyncio.gather(*map(self._is_alive, [live_seconds] * 2)):  # noqa: ASYNC110 (nothing tells it)
                await asyncio.sleep(slow_seconds)
            patience.reschedule(0.0)

        loop = asyncio.get_running_loop()
        # A task from the start would cost each fast call more than the rest of this does.
        timer = loop.call_later(slow_seconds, lambda: watches.append(loop.create_task(watch())))
        try:
            async with asyncio.timeout(None) as patience:
                return await calling
        except TimeoutError as error:
            raise DeadlineExceeded(what=f"a call to {self._service}, which hangs") from error
        finally:
            timer.cancel()
            for each in watches:
                each.cancel()

    async def _is_alive(self, timeout_seconds: float) -> bool:
        try:
            await call(
                self._health.Check,
                health_pb2.HealthCheckRequest(service=LIVENESS),
                service=self._service,
                timeout_seconds=timeout_seconds,
            )
        except DeadlineExceeded:
            return False
        except TandemError:  # a refusal is an answer; without a connection the call itself fails
            pass
        return True
