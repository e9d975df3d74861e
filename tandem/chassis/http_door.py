"""What platforms ask for over plain HTTP, beside the service's own port: metrics and probes.

    /metrics   for Prometheus, unless it is closed
    /live      200 while the event loop turns and the service's own port answers
    /ready     200 while health says SERVING and that port answers, 503 otherwise

Kubernetes' gRPC probes cannot show a certificate, so with TLS these are the probes to use.

The door has an event loop and threads of its own, so that a service whose loop stands still can be
told from one that is gone. Whoever comes has some seconds for all of it, and where too many came
the oldest goes: half a request, or one who never reads the page, keeps no probe waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from tandem.chassis.log import get_logger

log = get_logger()

BEAT_SECONDS = 1.0
# Longer than anything that may hold the loop for once, such as opening a large store.
STILL_SECONDS = 30.0

_REQUEST_BYTES = 16 * 1024
_CONNECTION_COUNT = 64
_BACKLOG = 128
_VISIT_SECONDS = 10.0

Probe = Callable[[], bool]
_Answer = tuple[str, list[tuple[str, str]], bytes]


class Heartbeat:
    """Says whether an event loop turns, to threads outside it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat_time = clock()

    async def beat(self) -> None:
        """Beats for ever, in the loop."""
        while True:
            self._beat_time = self._clock()
            await asyncio.sleep(BEAT_SECONDS)

    def is_beating(self) -> bool:
        """Returns whether the loop turned of late."""
        return self._clock() - self._beat_time < STILL_SECONDS


class HttpDoor:
    """A small HTTP server in threads of its own."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry | None,
        *,
        is_live: Probe = lambda: True,
        is_ready: Probe = lambda: True,
        visit_seconds: float = _VISIT_SECONDS,
    ) -> None:
        """Port 0 takes a free one; without a registry there are no metrics.

        Raises OSError where the port cannot be had.
        """
        self._probes = {"/live": is_live, "/ready": is_ready}
        self._metrics = None if registry is None else make_wsgi_app(registry)
        self._visit_seconds = visit_seconds
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        # One each: neither waits for the other.
        self._probing = ThreadPoolExecutor(1, "http-door-probe")
        self._scraping = ThreadPoolExecutor(1, "http-door-metrics")
        # Those who are here, oldest first, and whether what they asked for is under way.
        self._visits: dict[asyncio.Task[None], bool] = {}
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = Thread(target=self._run, name="http-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        for pool in (self._probing, self._scraping):
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        self._loop.set_exception_handler(_log_fault)
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._visit, sock=self._socket, limit=_REQUEST_BYTES, backlog=_BACKLOG
        )
        await self._stopping.wait()
        server.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)
        await asyncio.sleep(0)  # their sockets are closed by the loop's next turn

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.current_task()
        assert visit is not None
        if len(self._visits) >= _CONNECTION_COUNT:
            self._send_away_one()
        self._visits[visit] = False
        try:
            async with asyncio.timeout(self._visit_seconds):
                writer.write(_page(await self._answer(reader, visit)))
                await writer.drain()
                writer.write_eof()
                # They hang up when they have read it; where this side did first, what they still
                # send would have the answer thrown away.
                while await reader.read(_REQUEST_BYTES):
                    pass
        except (TimeoutError, asyncio.CancelledError, OSError):
            pass  # slow, in the way of others, or gone; none of that is a fault of ours
        finally:
            self._visits.pop(visit, None)
            writer.transport.abort()

    def _send_away_one(self) -> None:
        """Ends the oldest visit: of those who dawdle, if any does."""
        dawdling = (visit for visit, is_under_way in self._visits.items() if not is_under_way)
        oldest = next(dawdling, next(iter(self._visits)))
        oldest.cancel()
        self._visits.pop(oldest)

    async def _answer(self, reader: asyncio.StreamReader, visit: asyncio.Task[None]) -> _Answer:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _plain("431 Request Header Fields Too Large")
        except asyncio.IncompleteReadError:
            return _plain("400 Bad Request")
        line, _, rest = head.partition(b"\r\n")
        parts = line.decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/"):
            return _plain("400 Bad Request")
        method, (path, _, query) = parts[0], parts[1].partition("?")
        if method != "GET":
            return _plain("405 Method Not Allowed")
        self._visits[visit] = True
        answer = await self._routed(path, query, rest.decode("latin-1"))
        self._visits[visit] = False
        return answer

    async def _routed(self, path: str, query: str, headers: str) -> _Answer:
        if (probe := self._probes.get(path)) is not None:
            is_well = await self._loop.run_in_executor(self._probing, probe)
            return _plain("200 OK" if is_well else "503 Service Unavailable")
        if self._metrics is None or path not in ("/", "/metrics"):
            return _plain("404 Not Found")
        try:
            return await self._loop.run_in_executor(self._scraping, self._scrape, query, headers)
        # A metric's function may raise anything.
        except Exception as error:
            log.error("metrics cannot be told", exc_info=error)
            return _plain("500 Internal Server Error")

    def _scrape(self, query: str, headers: str) -> _Answer:
        assert self._metrics is not None
        told: list[Any] = []
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": query,
            "HTTP_ACCEPT": "",
            "HTTP_ACCEPT_ENCODING": "",
        }
        for line in headers.split("\r\n"):
            name, _, value = line.partition(":")
            environ[f"HTTP_{name.strip().upper().replace('-', '_')}"] = value.strip()
        try:
            body = b"".join(self._metrics(environ, lambda *status: told.extend(status)))
        # Of some headers the library cannot make sense, and says so in any way. A metric that fails
        # does so again.
        except Exception:
            environ |= {"QUERY_STRING": "", "HTTP_ACCEPT": "", "HTTP_ACCEPT_ENCODING": ""}
            body = b"".join(self._metrics(environ, lambda *status: told.extend(status)))
        return told[0], told[1], body


def _plain(status: str) -> _Answer:
    return status, [("Content-Type", "text/plain")], f"{status}\n".encode()


def _page(answer: _Answer) -> bytes:
    status, headers, body = answer
    headers = [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def _log_fault(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Writes what the door's loop cannot tell anybody, such as that no file is left to accept."""
    log.error("metrics port", what=context.get("message"), exc_info=context.get("exception"))
