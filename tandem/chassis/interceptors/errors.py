"""Turns what a handler raises into the status its caller gets."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc

from tandem.chassis.interceptors.handlers import (
    HandlerInterceptor,
    behavior,
    method_of,
    with_behavior,
)
from tandem.chassis.log import get_logger
from tandem.chassis.status import abort
from tandem.errors import InternalFault, RequestMalformed, TandemError

log = get_logger()


class ErrorsInterceptor(HandlerInterceptor):
    """`TandemError` goes out by the table; anything else is our fault, logged, not shown.

    Bytes that are no message are REQUEST_MALFORMED; gRPC by itself would call that our fault.
    """

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler` with what it raises told, and its requests parsed where it can be."""
        serve, method = behavior(handler), method_of(path)
        check = _checked_stream if handler.request_streaming else _checked

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            try:
                return await serve(check(request), context)
            except Exception as error:
                await _tell(context, error, method)

        async def stream(
            request: Any,  # noqa: ANN401
            context: grpc.aio.ServicerContext,
        ) -> AsyncIterator[Any]:
            try:
                async with aclosing(serve(check(request), context)) as responses:
                    async for response in responses:
                        yield response
            except Exception as error:
                await _tell(context, error, method)

        # gRPC parses before it calls the handler, out of every interceptor's reach. So parsing
        # never fails, and the handler's own call raises in its place.
        return with_behavior(
            handler,
            stream if handler.response_streaming else answer,
            _lenient(handler.request_deserializer),
        )

    def wrap_probe(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns the same: a probe that does not parse is refused too, not UNKNOWN."""
        serve, method = behavior(handler), method_of(path)
        if not handler.response_streaming or not inspect.iscoroutinefunction(serve):
            return self.wrap(path, handler)

        # Health's Watch: it writes its answers instead of yielding them.
        async def write(request: Any, context: grpc.aio.ServicerContext) -> None:  # noqa: ANN401
            try:
                await serve(_checked(request), context)
            except Exception as error:
                await _tell(context, error, method)

        return with_behavior(handler, write, _lenient(handler.request_deserializer))


async def _tell(context: grpc.aio.ServicerContext, error: Exception, method: str) -> NoReturn:
    """Aborts the call with what was raised; aborts pass through, and so does cancellation."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, TandemError):
        # The one net under every handler. The message goes to strangers, so it says nothing.
        log.error("internal fault", method=method, exc_info=error)
        error = InternalFault(why=f"{method} failed")
    await abort(context, error)


@dataclass(frozen=True, slots=True)
class _Malformed:
    """Stands for a request that did not parse until there is a call to refuse."""

    why: str


def _lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parse(request_bytes: bytes) -> Any:  # noqa: ANN401
        try:
            return deserialize(request_bytes)
        except Exception as error:
            return _Malformed(why=str(error))

    return parse


def _checked(request: Any) -> Any:  # noqa: ANN401
    if isinstance(request, _Malformed):
        raise RequestMalformed(why=request.why)
    return request


async def _checked_stream(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _checked(request)
