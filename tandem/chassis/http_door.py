"""What platforms ask for over plain HTTP, beside the service's own port: metrics and probes.

    /metrics   for Prometheus, unless it is closed
    /live      200 while the event loop turns; nothing else is asked of it
    /ready     200 while health says SERVING, 503 otherwise

Kubernetes' gRPC probes cannot show a certificate, so with TLS these are the probes to use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

BEAT_SECONDS = 1.0
# Longer than anything that may hold the loop for once, such as opening a large store.
_STILL_SECONDS = 30.0

WsgiApp = Callable[[dict[str, Any], Callable[..., object]], Iterable[bytes]]


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
        return self._clock() - self._beat_time < _STILL_SECONDS


class HttpDoor:
    """A small HTTP server in a thread of its own."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry | None,
        *,
        is_live: Callable[[], bool] = lambda: True,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """Port 0 takes a free one; without a registry there are no metrics.

        Raises OSError where the port cannot be had.
        """
        metrics = None if registry is None else make_wsgi_app(registry)
        app = _routed(metrics, {"/live": is_live, "/ready": is_ready})
        self._server = make_server(host, port, app, _Server, handler_class=_SilentHandler)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="http-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _routed(metrics: WsgiApp | None, probes: dict[str, Callable[[], bool]]) -> WsgiApp:
    def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if (probe := probes.get(path)) is not None:
            status = "200 OK" if probe() else "503 Service Unavailable"
        elif metrics is not None and path in ("/", "/metrics"):
            return metrics(environ, start_response)
        else:
            status = "404 Not Found"
        start_response(status, [("Content-Type", "text/plain")])
        return [f"{status}\n".encode()]

    return app


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 (its name there)
        """Says nothing: probes and scrapes come every few seconds."""
