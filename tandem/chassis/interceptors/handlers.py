"""Bases of interceptors that replace a method's handler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]

UNOBSERVED = ("/grpc.health.", "/grpc.reflection.")


class HandlerInterceptor(ABC):
    """Replaces each method's handler by `wrap` of it; a link of the chain (`chain.py`).

    Our methods are `async def`, or async generators for streamed answers.
    """

    def wrapped(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns the handler for the method at `path`."""
        return (self.wrap_probe if path.startswith(UNOBSERVED) else self.wrap)(path, handler)

    @abstractmethod
    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns the handler for one call of the method at `path`."""

    def wrap_probe(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns the handler for a health or reflection call: `handler` itself."""
        return handler


def method_of(path: str) -> str:
    """Returns the method's name, "SearchItems" for "/tandem.v1.SearchService/SearchItems"."""
    return path.rpartition("/")[2]


def behavior(handler: grpc.RpcMethodHandler) -> Callable[..., Any]:
    """Returns the function of `handler`."""
    return getattr(handler, _arity(handler))  # type: ignore[no-any-return]


def with_behavior(
    handler: grpc.RpcMethodHandler, replacement: Callable[..., Any]
) -> grpc.RpcMethodHandler:
    """Returns a handler like `handler` with another function."""
    make = _FACTORIES[_arity(handler)]
    return make(
        replacement,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def of_bytes(
    handler: grpc.RpcMethodHandler, replacement: Callable[..., Any]
) -> grpc.RpcMethodHandler:
    """Returns a handler like `handler` whose function returns bytes."""
    return _FACTORIES[_arity(handler)](
        replacement, request_deserializer=handler.request_deserializer, response_serializer=bytes
    )


def of_raw_stream(
    handler: grpc.RpcMethodHandler, replacement: Callable[..., Any]
) -> grpc.RpcMethodHandler:
    """Returns a handler like `handler` that reads requests as bytes, on demand."""
    response = "stream" if handler.response_streaming else "unary"
    return _FACTORIES[f"stream_{response}"](
        replacement, request_deserializer=bytes, response_serializer=handler.response_serializer
    )


def _arity(handler: grpc.RpcMethodHandler) -> str:
    request = "stream" if handler.request_streaming else "unary"
    response = "stream" if handler.response_streaming else "unary"
    return f"{request}_{response}"


_FACTORIES: dict[str, Callable[..., grpc.RpcMethodHandler]] = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}
