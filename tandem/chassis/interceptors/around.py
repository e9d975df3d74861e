"""One shape for all our interceptors: something before and after a call of any arity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from functools import lru_cache
from typing import Any

import grpc

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]

UNOBSERVED = ("/grpc.health.", "/grpc.reflection.")

# More than any service of ours has methods.
KEPT_HANDLER_COUNT = 256


class AroundInterceptor(grpc.aio.ServerInterceptor):
    """Runs `around` around each call that is not a health or reflection call.

    Methods of ours are `async def`, and async generators where they answer with a stream.
    """

    def __init__(self) -> None:
        # gRPC asks for a method's handler at each of its calls; it is wrapped at the first.
        self.wrapped = lru_cache(KEPT_HANDLER_COUNT)(self._wrapped)

    def around(
        self, method: str, context: grpc.aio.ServicerContext
    ) -> AbstractContextManager[object]:
        """Returns what to enter before the call of `method`, for example "SearchItems"."""
        raise NotImplementedError

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """Returns the handler with `around` in it; None, so UNIMPLEMENTED, where there is none."""
        handler = await continuation(handler_call_details)
        return None if handler is None else self.wrapped(handler_call_details.method, handler)

    def _wrapped(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        method = path.rpartition("/")[2]
        if path.startswith(UNOBSERVED):
            return self.wrap_probe(handler, method)
        return self.wrap(handler, method)

    def wrap_probe(self, handler: grpc.RpcMethodHandler, method: str) -> grpc.RpcMethodHandler:
        """Returns what serves a health or reflection call: `handler`, as it is."""
        return handler

    def wrap(self, handler: grpc.RpcMethodHandler, method: str) -> grpc.RpcMethodHandler:
        """Returns `handler` with `around` entered for as long as it runs."""
        inner = behavior(handler)

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            with self.around(method, context):
                return await inner(request, context)

        async def stream(
            request: Any,  # noqa: ANN401
            context: grpc.aio.ServicerContext,
        ) -> AsyncIterator[Any]:
            with self.around(method, context):
                async with aclosing(inner(request, context)) as responses:
                    async for response in responses:
                        yield response

        return with_behavior(handler, stream if handler.response_streaming else answer)


def behavior(handler: grpc.RpcMethodHandler) -> Callable[..., Any]:
    """Returns the function that serves `handler`'s method."""
    return getattr(handler, _arity(handler))  # type: ignore[no-any-return]


def with_behavior(
    handler: grpc.RpcMethodHandler,
    replacement: Callable[..., Any],
    request_deserializer: Callable[[bytes], Any] | None = None,
) -> grpc.RpcMethodHandler:
    """Returns a handler like `handler`, served by `replacement`."""
    make = _FACTORIES[_arity(handler)]
    return make(
        replacement,
        request_deserializer=request_deserializer or handler.request_deserializer,
        response_serializer=handler.response_serializer,
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
