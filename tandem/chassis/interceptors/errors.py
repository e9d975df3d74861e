"""Turns a handler's exception into the caller's status, and frees what it holds at once."""

import traceback
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from tandem.chassis.calls.status import abort
from tandem.chassis.interceptors.handlers import (
    HandlerInterceptor,
    behavior,
    method_of,
    with_behavior,
)
from tandem.chassis.telemetry.log import get_logger
from tandem.errors import InternalFault, TandemError

log = get_logger()


class ErrorsInterceptor(HandlerInterceptor):
    """Sends a `TandemError` as its status; logs anything else, and sends INTERNAL."""

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler` with its exceptions turned into statuses."""
        serve, method = behavior(handler), method_of(path)

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            try:
                return await serve(request, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                named = _for_caller(error, method)
            return await abort(context, named)

        async def stream(
            request: Any,  # noqa: ANN401
            context: grpc.aio.ServicerContext,
        ) -> AsyncIterator[Any]:
            try:
                async with aclosing(serve(request, context)) as responses:
                    async for response in responses:
                        yield response
                return
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                named = _for_caller(error, method)
            await abort(context, named)

        return with_behavior(handler, stream if handler.response_streaming else answer)

    def wrap_probe(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns the same: a refused probe gets its reason too."""
        return self.wrap(path, handler)


class ReleaseInterceptor(HandlerInterceptor):
    """Removes the frames from an abort.

    gRPC keeps the abort with the call, and the abort's frames hold the call: a reference cycle,
    which the garbage collector finds late when there are many objects. So this is outermost.
    """

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler` with aborts that hold no frames."""
        serve = behavior(handler)

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            serving = serve(request, context)
            del request, context
            try:
                return await serving
            except grpc.aio.AbortError as error:
                raise _alone(error) from None

        async def stream(
            request: Any,  # noqa: ANN401
            context: grpc.aio.ServicerContext,
        ) -> AsyncIterator[Any]:
            responses = serve(request, context)
            del request, context
            try:
                async for response in responses:
                    yield response
            except grpc.aio.AbortError as error:
                raise _alone(error) from None
            finally:
                await responses.aclose()

        return with_behavior(handler, stream if handler.response_streaming else answer)

    def wrap_probe(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns the same."""
        return self.wrap(path, handler)


def _alone(error: grpc.aio.AbortError) -> grpc.aio.AbortError:
    error.__context__ = None
    return error.with_traceback(None)


def _for_caller(error: Exception, method: str) -> TandemError:
    """Returns the error that the caller gets, without the traceback of the exception.

    gRPC keeps an abort and its causes as long as the call. An error, its traceback and its frames
    form a reference cycle that holds the request until the garbage collector runs.
    """
    if isinstance(error, TandemError):
        named = error
    else:
        # The last resort of every handler. Strangers see the message, so it says nothing.
        log.error("internal fault", method=method, exc_info=error)
        named = InternalFault(why=f"{method} failed")
    forget(error)
    return named


def forget(error: BaseException) -> None:
    """Removes the tracebacks of an error and of its causes."""
    seen: set[int] = set()
    behind: list[BaseException | None] = [error]
    while behind:
        each = behind.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        behind += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            behind += each.exceptions
        traceback.clear_frames(each.__traceback__)
        each.__traceback__ = each.__cause__ = each.__context__ = None
