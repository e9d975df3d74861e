"""A grpc.aio server that survives a path that is not UTF-8.

For a call to an unknown method, grpc.aio decodes the path in the loop that accepts all calls. One
path that is not UTF-8 ends that loop and the server with it (grpcio up to 1.85.3;
docs/decisions/0037). Registered methods are matched without decoding. So we register all of ours,
and refuse the other calls here, unread.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server as grpc_aio

from tandem.chassis.interceptors.handlers import InterceptorChain
from tandem.chassis.serve.direct_channel import DirectChannel

# Names refused calls in tasks and library logs, never with the caller's text.
_UNKNOWN_METHOD = "unknown method"


class GrpcServer(grpc_aio.Server):
    """Serves registered methods only, as generated code registers them.

    Answers every other call with UNIMPLEMENTED before it reads anything of it. Handlers that were
    only added by `add_generic_rpc_handlers` are not served.
    """

    def __init__(
        self,
        chain: InterceptorChain,
        options: Sequence[tuple[str, Any]],
    ) -> None:
        """Needs a running event loop."""
        # Skip the base class: it would create a Core server that nothing shuts down.
        self._loop = asyncio.get_running_loop()
        self._server = _RefusingServer(self._loop, None, (), [chain], tuple(options), None)
        self._chain = chain
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, grpc.RpcMethodHandler]
    ) -> None:
        """Registers a service's methods, as the generated code calls it."""
        super().add_registered_method_handlers(service_name, dict(method_handlers))
        for name, handler in method_handlers.items():
            self._handlers[f"/{service_name}/{name}"] = handler

    def direct_channel(self, names: Iterable[str] = ()) -> DirectChannel:
        """Returns a channel for this process, as of a caller whose certificate has `names`."""
        return DirectChannel(self._chain, self._handlers, tuple(names))


class _RefusingServer(cygrpc.AioServer):
    """Keeps calls to unknown methods away from the loop that would decode their paths."""

    def _make_request_call_future(self, method_bytes: bytes | None) -> asyncio.Future[Any]:
        """Returns the next call to a registered method; the other calls never arrive here."""
        if method_bytes is not None:
            taken: asyncio.Future[Any] = super()._make_request_call_future(method_bytes)
            return taken
        return asyncio.ensure_future(self._refuse_unknown_methods())

    async def _refuse_unknown_methods(self) -> None:
        """Answers each as grpc.aio would; raises once the server ends."""
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
            # The call keeps its memory until its task is done, and no longer.
            del call, refusal, task
