"""Serves metrics and probes over plain HTTP, on a port of its own.

    /metrics   for Prometheus, unless it is turned off
    /live      200 while the event loop turns and the gRPC port answers
    /ready     200 while health is SERVING and that port answers, 503 otherwise

Kubernetes' gRPC probes cannot present a certificate, so with TLS these are the probes to use.

It has an event loop and threads of its own, so that it can report a service whose loop is stuck. A
visit has a few seconds, and with too many visits the oldest of the host that has most ends: half a
request, or a client that never reads, delays no probe.
"""

import asyncio
import contextlib
import gzip
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from tandem.chassis.capacity.crowd import Crowd
from tandem.chassis.process.file_limit import brief_when_scarce
from tandem.chassis.telemetry.log import get_logger

log = get_logger()

BEAT_SECONDS = 1.0
# Longer than anything that may block the loop once, such as opening a large store.
STILL_SECONDS = 30.0

_REQUEST_BYTES = 16 * 1024
_CONNECTION_COUNT = 64
_BACKLOG = 128
_VISIT_SECONDS = 10.0
# Ranks of visits.
_IDLE, _ANSWERED = range(2)

Probe = Callable[[], bool]
_Answer = tuple[str, list[tuple[str, str]], bytes]


class Heartbeat:
    """Tells other threads whether an event loop turns."""

    def __init__(self) -> None:
        self._beat_time = time.monotonic()

    async def beat(self) -> None:
        """Beats forever, in the loop."""
        while True:
            self._beat_time = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    def is_beating(self) -> bool:
        """Returns whether the loop turned recently."""
        return time.monotonic() - self._beat_time < STILL_SECONDS


class MetricsServer:
    """An HTTP server in threads of its own."""

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
        """Port 0 takes a free port; without a registry there are no metrics.

        Raises OSError if the port is not available.
        """
        self._probes = {"/live": is_live, "/ready": is_ready}
        self._registry = registry
        self._visit_seconds = visit_seconds
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        # One thread each, so that neither waits for the other.
        self._probing = ThreadPoolExecutor(1, "metrics-server-probe")
        self._scraping = ThreadPoolExecutor(1, "metrics-server-metrics")
        self._visits = Crowd[asyncio.Task[None]](_CONNECTION_COUNT)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = Thread(target=self._run, name="metrics-server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the server."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        for pool in (self._probing, self._scraping):
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        self._loop.set_exception_handler(brief_when_scarce("metrics", _log_fault))
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._visit, sock=self._socket, limit=_REQUEST_BYTES, backlog=_BACKLOG
        )
        await self._stopping.wait()
        # Out of open files, asyncio listens again a second later, and then finds no socket.
        self._loop.set_exception_handler(lambda *_: None)
        server.close()
        for visit in self._visits.members:
            visit.cancel()
        await asyncio.gather(*self._visits.members, return_exceptions=True)
        await asyncio.sleep(0)  # The loop's next turn closes their sockets.

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.current_task()
        assert visit is not None
        host = str((writer.get_extra_info("peername") or ("",))[0])
        if (displaced := self._visits.least_needed(host)) is not None:
            self._visits.remove(displaced)
            displaced.cancel()
        self._visits.add(visit, host, _IDLE)
        try:
            async with asyncio.timeout(self._visit_seconds):
                writer.write(_page(await self._answer(reader, visit)))
                await writer.drain()
                writer.write_eof()
                # Let the client close first: if this side did, what the client still sends would
                # discard the answer.
                while await reader.read(_REQUEST_BYTES):
                    pass
        except (TimeoutError, asyncio.CancelledError, OSError):
            pass  # The client is slow, evicted or gone; none of that is our fault.
        finally:
            self._visits.remove(visit)
            writer.transport.abort()

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
        self._visits.set_rank(visit, _ANSWERED)
        answer = await self._routed(path, query, rest.decode("latin-1"))
        self._visits.set_rank(visit, _IDLE)
        return answer

    async def _routed(self, path: str, query: str, headers: str) -> _Answer:
        if (probe := self._probes.get(path)) is not None:
            is_well = await self._loop.run_in_executor(self._probing, probe)
            return _plain("200 OK" if is_well else "503 Service Unavailable")
        if self._registry is None or path not in ("/", "/metrics"):
            return _plain("404 Not Found")
        try:
            return await self._loop.run_in_executor(self._scraping, self._scrape, query, headers)
        # A metric's callback may raise anything.
        except Exception as error:
            log.error("metrics cannot be rendered", exc_info=error)
            return _plain("500 Internal Server Error")

    def _scrape(self, query: str, headers: str) -> _Answer:
        assert self._registry is not None
        lines = (line.partition(":") for line in headers.split("\r\n"))
        asked = {name.strip().lower(): value.strip() for name, _, value in lines}
        try:
            encode, kind = choose_encoder(asked.get("accept", ""))
        # The library raises various errors for a header that it cannot parse.
        except Exception:
            encode, kind = choose_encoder("")
        names = parse_qs(query).get("name[]")
        body = encode(self._registry.restricted_registry(names) if names else self._registry)
        if gzip_accepted(asked.get("accept-encoding", "")):
            coding = [("Content-Type", kind), ("Content-Encoding", "gzip")]
            return "200 OK", coding, gzip.compress(body)
        return "200 OK", [("Content-Type", kind)], body


def _plain(status: str) -> _Answer:
    return status, [("Content-Type", "text/plain")], f"{status}\n".encode()


def _page(answer: _Answer) -> bytes:
    status, headers, body = answer
    headers = [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def _log_fault(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs errors of the server's loop."""
    log.error("metrics port", what=context.get("message"), exc_info=context.get("exception"))
