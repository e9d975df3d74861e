"""Stands in for gRPC's context of a call, where a process calls its own server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import grpc

Metadata = Sequence[tuple[str, str | bytes]]

PEER = "in-process:0"
"""Stands for the caller's address, in which the port differs by connection."""


class DirectCall:
    """Stands in for `grpc.aio.ServicerContext` where there is no connection."""

    def __init__(
        self,
        path: str,
        messages: Iterator[bytes],
        timeout_seconds: float | None,
        metadata: Metadata,
        names: Sequence[str] = (),
    ) -> None:
        """Treats this process as a caller whose certificate has these `names`."""
        self.path = path
        self._metadata = metadata
        self._messages = messages
        self._end_time = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._names = names
        self._callbacks: list[Callable[[DirectCall], object]] = []
        self._trailing: Metadata = ()
        self._code: grpc.StatusCode | None = None
        self._details = ""

    async def read(self) -> Any:  # noqa: ANN401 (bytes, or gRPC's mark of the end)
        """Returns the next request's bytes, or EOF."""
        return next(self._messages, grpc.aio.EOF)

    def time_remaining(self) -> float | None:
        """Returns the seconds that the caller still waits; None if that is not limited."""
        return None if self._end_time is None else max(0.0, self._end_time - time.monotonic())

    def peer(self) -> str:
        """Returns the same for all calls of this process."""
        return PEER

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Returns the names as those of a certificate."""
        return {"x509_common_name": [name.encode() for name in self._names]}

    def invocation_metadata(self) -> Metadata:
        """Returns the headers of the call."""
        return self._metadata

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Sets what follows the answer."""
        self._trailing = metadata

    def trailing_metadata(self) -> Metadata:
        """Returns what follows the answer, or comes with the error."""
        return self._trailing

    def code(self) -> grpc.StatusCode | None:
        """Returns the code of an aborted call."""
        return self._code

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        """Ends the call with an error."""
        self._code, self._details, self._trailing = code, details, trailing_metadata
        raise grpc.aio.AbortError(details)

    def add_done_callback(self, callback: Callable[[DirectCall], object]) -> None:
        """Calls the callback once the call has ended."""
        self._callbacks.append(callback)

    def end(self) -> None:
        """Calls the callbacks."""
        for callback in self._callbacks:
            callback(self)

    def error(self) -> grpc.aio.AioRpcError:
        """Returns what a caller over a connection would raise of an aborted call."""
        return rpc_error(self._code or grpc.StatusCode.UNKNOWN, self._details, self._trailing)


def rpc_error(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    """Returns the error of a call, as gRPC raises it."""
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details=details
    )
