"""Interceptors that put something in place of a method's handler."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

import grpc

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]

UNOBSERVED = ("/grpc.health.", "/grpc.reflection.")

# More than any service of ours has methods.
KEPT_HANDLER_COUNT = 256


class HandlerInterceptor(grpc.aio.ServerInterceptor):
    """Serves each method by what `wrap` makes of its handler.

    Methods of ours are `async def`, and async generators where they answer with a stream.
    """

    def __init__(self) -> None:
        # gRPC asks for a method's handler at each of its calls; it is wrapped at the first.
        self._kept = lru_cache(KEPT_HANDLER_COUNT)(self._choose)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """Returns the wrapped handler; None, so UNIMPLEMENTED, where there is none."""
        handler = await continuation(handler_call_details)
        return None if handler is None else self.wrapped(handler_call_details.method, handler)

    def wrapped(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns what serves the method of `path` in place of `handler`."""
        return self._kept(path, handler)

    @abstractmethod
    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns what serves a call of the method of `path`."""

    def wrap_probe(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns what serves a health or reflection call: `handler`, as it is."""
        return handler

    def _choose(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        return (self.wrap_probe if path.startswith(UNOBSERVED) else self.wrap)(path, handler)


def method_of(path: str) -> str:
    """Returns the method's name: "SearchItems" of "/tandem.v1.IndexService/SearchItems"."""
    return path.rpartition("/")[2]


def behavior(handler: grpc.RpcMethodHandler) -> Callable[..., Any]:
    """Returns the function that serves `handler`'s method."""
    return getattr(handler, _arity(handler))  # type: ignore[no-any-return]


def with_behavior(
    handler: grpc.RpcMethodHandler, replacement: Callable[..., Any]
) -> grpc.RpcMethodHandler:
    """Returns a handler like `handler`, served by `replacement`."""
    make = _FACTORIES[_arity(handler)]
    return make(
        replacement,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def of_bytes(
    handler: grpc.RpcMethodHandler, replacement: Callable[..., Any]
) -> grpc.RpcMethodHandler:
    """Returns a handler like `handler`, served by `replacement`, which answers with bytes."""
    return _FACTORIES[_arity(handler)](
        replacement, request_deserializer=handler.request_deserializer, response_serializer=bytes
    )


def of_raw_stream(
    handler: grpc.RpcMethodHandler, replacement: Callable[..., Any]
) -> grpc.RpcMethodHandler:
    """Returns a handler that answers as `handler` does, and reads bytes when it asks for them."""
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
