"""Runs code before and after a call of any arity."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing
from typing import Any

import grpc

from tandem.chassis.interceptors.handlers import (
    HandlerInterceptor,
    behavior,
    method_of,
    with_behavior,
)


class AroundInterceptor(HandlerInterceptor):
    """Runs `around` around each call that is not a health or reflection call."""

    @abstractmethod
    def around(
        self, method: str, context: grpc.aio.ServicerContext
    ) -> AbstractContextManager[object]:
        """Returns the context manager for a call of `method`, for example "SearchItems"."""

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler` with `around` entered for as long as it runs."""
        inner, method = behavior(handler), method_of(path)

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
