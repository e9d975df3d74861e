"""How a call ended, as the interceptors outside of the handler see it."""

from __future__ import annotations

import asyncio

import grpc

# A caller whose time is up says so at its own clock, and its clock began as the call set out.
_TRANSIT_SECONDS = 0.05

_NAMES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def code_name(context: grpc.aio.ServicerContext, fault: BaseException | None) -> str:
    """Returns the name of the call's status code, where `fault` left its handler."""
    if isinstance(fault, asyncio.CancelledError):
        # gRPC cancels the handler for both; what is left of the time tells which.
        remaining = context.time_remaining()
        out_of_time = remaining is not None and remaining <= _TRANSIT_SECONDS
        return "DEADLINE_EXCEEDED" if out_of_time else "CANCELLED"
    code = context.code()
    # After an abort, also one that the caller could not be told of: gRPC had ended the call itself,
    # as it does where headers are over its limit.
    if isinstance(code, grpc.StatusCode):
        return str(code.name)
    if isinstance(fault, GeneratorExit | grpc.aio.InternalError):
        # gRPC cannot send, an answer of a stream or the end of a call: whoever called has gone.
        return "CANCELLED"
    if fault is not None and not isinstance(fault, grpc.aio.AbortError):
        return "UNKNOWN"
    # The number of a code; nothing where nothing was set, which is OK.
    return _NAMES.get(code or 0, "UNKNOWN")
