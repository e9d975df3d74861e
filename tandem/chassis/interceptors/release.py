"""Frees the memory of a refused call at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from tandem.chassis.interceptors.handlers import HandlerInterceptor, behavior, with_behavior


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
