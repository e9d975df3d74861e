"""How a call ended, as the interceptors outside of the handler see it."""

from __future__ import annotations

import asyncio

import grpc

_NAMES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def code_name(context: grpc.aio.ServicerContext, fault: BaseException | None) -> str:
    """Returns the name of the call's status code, where `fault` left its handler."""
    if isinstance(fault, asyncio.CancelledError):
        # gRPC cancels the handler for both; what is left of the time tells which.
        remaining = context.time_remaining()
        out_of_time = remaining is not None and remaining <= 0
        return "DEADLINE_EXCEEDED" if out_of_time else "CANCELLED"
    if fault is not None and not isinstance(fault, grpc.aio.AbortError):
        return "UNKNOWN"
    code = context.code()
    # A StatusCode after an abort, or its number; nothing where nothing was set, which is OK.
    return str(code.name) if isinstance(code, grpc.StatusCode) else _NAMES.get(code or 0, "UNKNOWN")
