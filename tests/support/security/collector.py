"""An OpenTelemetry collector that keeps every byte it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@dataclass
class Collector:
    """Where it listens, and what it got."""

    address: str = ""
    received: list[bytes] = field(default_factory=list)
    headers: set[tuple[str, str]] = field(default_factory=set)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Runs a collector on loopback."""
    collector = Collector()

    def export(request: bytes, context: grpc.ServicerContext) -> bytes:
        collector.received.append(request)
        collector.headers.update((key, str(value)) for key, value in context.invocation_metadata())
        return b""

    handler = grpc.unary_unary_rpc_method_handler(export)
    service, _, method = _EXPORT.strip("/").partition("/")
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield collector
        finally:
            server.stop(None).wait()
