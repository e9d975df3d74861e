"""Bounds the memory that unfinished messages of unauthenticated callers take.

Anyone may make a health or reflection call. gRPC collects its message, up to the server's limit of
64 MiB, before it hands over a byte; it has no smaller limit by method, and does not say how much
has arrived. All that can be seen is that the message takes long and that the process grows.
"""

import asyncio
from collections import deque
from typing import Any

import grpc

from tandem.chassis.process.memory import resident_bytes

# Between two looks at the process's memory, while a message is awaited.
_LOOK_SECONDS = 0.01
# A probe's message comes with its headers, so one that is still awaited at so many looks is slow.
# Looks are counted, not seconds: a busy event loop takes some turns to read what has arrived.
_SLOW_LOOK_COUNT = 5
_MAX_GROWN_BYTES = 16 << 20
# Looks that are remembered: about as long as a probe is awaited at most.
_KEPT_LOOK_COUNT = 500


class SlowMessages:
    """Reads messages that arrive at once, and gives up slow ones while the process grows."""

    def __init__(self, max_grown_bytes: int = _MAX_GROWN_BYTES) -> None:
        self._max_grown_bytes = max_grown_bytes
        self._look_counts: dict[asyncio.Timeout, int] = {}
        self._is_looking = False
        self._memory: deque[int] = deque(maxlen=_KEPT_LOOK_COUNT)

    async def read(self, context: grpc.aio.ServicerContext, max_wait_seconds: float) -> Any:  # noqa: ANN401
        """Returns the next message's bytes, or EOF; raises TimeoutError."""
        async with asyncio.timeout(max_wait_seconds) as wait:
            self._look_counts[wait] = 0
            self._start_looking()
            try:
                return await context.read()
            finally:
                del self._look_counts[wait]

    def _start_looking(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._memory.clear()
            self._memory.append(resident_bytes())
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._is_looking = bool(self._look_counts)
        if not self._is_looking:
            return
        loop = asyncio.get_running_loop()
        loop.call_later(_LOOK_SECONDS, self._look)
        self._memory.append(resident_bytes())
        is_growing = self._memory[-1] - min(self._memory) > self._max_grown_bytes
        for wait, look_count in self._look_counts.items():
            self._look_counts[wait] = look_count + 1
            if is_growing and look_count >= _SLOW_LOOK_COUNT and not wait.expired():
                wait.reschedule(loop.time())
