"""Turns what a handler raises into the status its caller gets."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from tandem.chassis.interceptors.around import AroundInterceptor, behavior, with_behavior
from tandem.chassis.log import get_logger
from tandem.chassis.status import abort
from tandem.errors import InternalFault, RequestMalformed, TandemError

log = get_logger(__name__)


class ErrorsInterceptor(AroundInterceptor):
    """`TandemError` goes out by the table; anything else is our fault, logged, not shown.

    Bytes that are no message are REQUEST_MALFORMED; gRPC by itself would call that our fault.
    """

    @asynccontextmanager
    async def around(self, method: str, context: grpc.aio.ServicerContext) -> AsyncIterator[None]:
        """Aborts the call with what was raised; cancellation and aborts pass through."""
        try:
            yield
        except TandemError as error:
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception:
            # The one net under every handler. The message goes to strangers, so it says nothing.
            log.exception("internal fault", method=method)
            await abort(context, InternalFault(why=f"{method} failed"))

    def wrap(self, handler: grpc.RpcMethodHandler, method: str) -> grpc.RpcMethodHandler:
        """Returns `handler` inside `around`, with its requests parsed inside it too."""
        return super().wrap(_refusing_malformed(handler), method)

    def wrap_probe(self, handler: grpc.RpcMethodHandler, method: str) -> grpc.RpcMethodHandler:
        """Returns the same: a probe that does not parse is refused too, not UNKNOWN."""
        serve = behavior(handler)
        if not handler.response_streaming or not inspect.iscoroutinefunction(serve):
            return self.wrap(handler, method)

        # Health's Watch: it writes its answers instead of yielding them.
        async def write(request: Any, context: grpc.aio.ServicerContext) -> None:  # noqa: ANN401
            async with self.around(method, context):
                await serve(_checked(request), context)

        return with_behavior(handler, write, _lenient(handler.request_deserializer))


@dataclass(frozen=True, slots=True)
class _Malformed:
    """Stands for a request that did not parse until there is a call to refuse."""

    why: str


def _refusing_malformed(handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
    serve = behavior(handler)
    check = _checked_stream if handler.request_streaming else _checked

    # gRPC parses before it calls the handler, out of every interceptor's reach. So parsing never
    # fails, and the handler's own call raises in its place. Both arities return what `serve` does.
    if handler.response_streaming:

        async def stream(
            request: Any,  # noqa: ANN401
            context: grpc.aio.ServicerContext,
        ) -> AsyncIterator[Any]:
            async for response in serve(check(request), context):
                yield response

        return with_behavior(handler, stream, _lenient(handler.request_deserializer))

    async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
        return await serve(check(request), context)

    return with_behavior(handler, answer, _lenient(handler.request_deserializer))


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
