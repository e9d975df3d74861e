"""Proxies TCP between a client and a service, with delays, narrow bandwidth, silence and cuts."""

import asyncio
import contextlib
import random
import socket
import struct
from dataclasses import dataclass
from typing import Self

_CHUNK_BYTES = 1 << 16
# Closing with a linger of 0 s sends RST.
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Direction:
    """Sets what happens to bytes in one direction."""

    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    """Up to so much more delay, by chance; bytes keep their order."""
    bytes_per_second: float | None = None
    is_silent: bool = False
    """Bytes vanish without a notice: a black hole."""


class Proxy:
    """Listens on its own port and forwards everything to the target.

    `to_service` and `to_client` may be changed at any time, one alone for a one-way fault.
    """

    def __init__(self, target_port: int, rng: random.Random) -> None:
        """Takes the service's port on the loopback; `async with` starts it."""
        self.to_service, self.to_client = Direction(), Direction()
        self.port = 0
        self._target_port = target_port
        self._rng = rng
        self._writers: set[asyncio.StreamWriter] = set()
        self._opened: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_down = False
        self._has_ended = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._has_ended = True
        # asyncio loses, unclosed, a connection that it takes in the turn its server closes in.
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        await asyncio.sleep(0.02)
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        for writer in self._opened:
            writer.transport.abort()
        # What was aborted closes in the loop's next turns, and what was taken just now is refused.
        await asyncio.sleep(0.02)

    def silence(self) -> None:
        """Drops all bytes in both directions, until heal()."""
        self.to_service.is_silent = self.to_client.is_silent = True

    def cut(self) -> None:
        """Resets every connection; new ones are accepted."""
        for writer in self._writers:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        self._writers.clear()

    def refuse(self) -> None:
        """Resets every connection, and new ones at once, until heal()."""
        self._is_down = True
        self.cut()

    def heal(self) -> None:
        """Ends every fault; connections that lost bytes are reset."""
        had_silence = self.to_service.is_silent or self.to_client.is_silent
        self._is_down = False
        self.to_service, self.to_client = Direction(), Direction()
        if had_silence:  # half a message is worse than none
            self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self._opened.append(writer)
        try:
            if self._is_down or self._has_ended:
                self.cut()
                return
            service_reader, service_writer = await asyncio.open_connection(
                "127.0.0.1", self._target_port
            )
            self._writers.add(service_writer)
            self._opened.append(service_writer)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._pass_on(reader, service_writer, is_to_service=True))
                directions.create_task(self._pass_on(service_reader, writer, is_to_service=False))
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_to_service: bool
    ) -> None:
        """Reads on while earlier bytes are delayed: a delay is not a narrow pipe."""
        queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
        sending = asyncio.create_task(_send(queue, writer))
        loop = asyncio.get_running_loop()
        free_time = loop.time()
        try:
            with contextlib.suppress(OSError):
                while chunk := await reader.read(_CHUNK_BYTES):
                    direction = self.to_service if is_to_service else self.to_client
                    if direction.is_silent:
                        continue
                    delay = direction.delay_seconds + self._rng.uniform(0, direction.jitter_seconds)
                    due_time = max(free_time, loop.time() + delay)
                    if direction.bytes_per_second:
                        due_time += len(chunk) / direction.bytes_per_second
                    free_time = due_time
                    queue.put_nowait((due_time, chunk))
            queue.put_nowait(None)
            await sending
        finally:
            sending.cancel()
            self._writers.discard(writer)


async def _send(
    queue: "asyncio.Queue[tuple[float, bytes] | None]", writer: asyncio.StreamWriter
) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while entry := await queue.get():
            due_time, chunk = entry
            await asyncio.sleep(due_time - loop.time())
            writer.write(chunk)
            await writer.drain()
    writer.close()
