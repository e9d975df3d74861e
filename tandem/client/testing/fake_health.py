"""Answers the health checks of clients, without the package that has their messages."""

from __future__ import annotations

from collections.abc import Callable

import grpc

# A HealthCheckResponse whose status is SERVING.
_SERVING = b"\x08\x01"


class FakeHealth(grpc.GenericRpcHandler):
    """Says that the fake serves; otherwise each client's connection would log an error."""

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns the handler of a health check; None for another call."""
        if call.method == "/grpc.health.v1.Health/Watch":
            return grpc.unary_stream_rpc_method_handler(_watch)
        if call.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(_check)
        return None


def _check(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    return _SERVING


def _watch(_request: bytes, _context: grpc.ServicerContext, send: Callable[[bytes], None]) -> None:
    # The call stays open, and takes no thread.
    send(_SERVING)


# As grpcio-health-checking has it.
_watch.experimental_non_blocking = True  # type: ignore[attr-defined]
