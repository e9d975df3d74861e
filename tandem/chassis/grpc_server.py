"""A grpc.aio server that no path can end.

grpc.aio decodes the path of a call to a method that it does not know in the loop that takes all
calls. One path that is no UTF-8 ends that loop, and the server with it, for whoever can connect
(grpcio up to 1.85.3; docs/decisions/0037). Methods that are registered are known by number, and
their paths never decoded. So all of ours are, and what is left over is refused here, unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server as grpc_aio

# Of what is refused, in names of tasks and the library's lines; never the caller's own words.
_UNKNOWN_METHOD = "unknown method"


class GrpcServer(grpc_aio.Server):
    """Serves the methods that are registered, as generated code does with all of a service.

    Every other call is UNIMPLEMENTED before anything of it is read. Handlers that were only added
    by `add_generic_rpc_handlers` are not served.
    """

    def __init__(
        self,
        interceptors: Sequence[grpc.aio.ServerInterceptor],
        options: Sequence[tuple[str, Any]],
    ) -> None:
        """Needs a running loop."""
        # Not the base's own: it would make a server of Core too, which nobody then shuts down.
        self._loop = asyncio.get_running_loop()
        self._server = _RefusingServer(self._loop, None, (), interceptors, tuple(options), None)


class _RefusingServer(cygrpc.AioServer):
    """Keeps calls of unknown methods from the loop that would decode their paths."""

    def _make_request_call_future(self, method_bytes: bytes | None) -> asyncio.Future[Any]:
        """Returns the next call of a registered method; of the others none comes, until the end."""
        if method_bytes is not None:
            taken: asyncio.Future[Any] = super()._make_request_call_future(method_bytes)
            return taken
        return asyncio.ensure_future(self._refuse_unknown_methods())

    async def _refuse_unknown_methods(self) -> None:
        """Answers each as grpc.aio would; raises what the end of the server makes of the next."""
        loop = asyncio.get_running_loop()
        nothing = cygrpc._MethodResolver([], {})  # noqa: SLF001 (no other name for it)
        refusals: set[asyncio.Task[None]] = set()
        while True:
            call = await self._request_call()
            refusal = cygrpc._handle_rpc(  # noqa: SLF001
                _UNKNOWN_METHOD, nothing, (), call, loop, False
            )
            task = asyncio.ensure_future(
                cygrpc._schedule_rpc_coro(  # noqa: SLF001
                    refusal, call, loop, _UNKNOWN_METHOD
                )
            )
            refusals.add(task)
            task.add_done_callback(refusals.discard)
            # The call keeps its memory until its task is done with it, and no longer.
            del call, refusal, task
