"""Determines how a call ended, for interceptors outside of the handler."""

from __future__ import annotations

import asyncio

import grpc

# The caller's deadline runs on its own clock, which started when it sent the call.
_TRANSIT_SECONDS = 0.05

_NAMES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def code_name(context: grpc.aio.ServicerContext, fault: BaseException | None) -> str:
    """Returns the name of the call's status code, given the exception of its handler."""
    if isinstance(fault, asyncio.CancelledError):
        # gRPC cancels the handler in both cases; the remaining time tells which it was.
        remaining = context.time_remaining()
        out_of_time = remaining is not None and remaining <= _TRANSIT_SECONDS
        return "DEADLINE_EXCEEDED" if out_of_time else "CANCELLED"
    code = context.code()
    # After an abort, also one that could not be sent because gRPC had ended the call itself, as it
    # does for headers over its limit.
    if isinstance(code, grpc.StatusCode):
        return str(code.name)
    if isinstance(fault, GeneratorExit | grpc.aio.InternalError):
        # gRPC cannot send: the caller has gone.
        return "CANCELLED"
    if fault is not None and not isinstance(fault, grpc.aio.AbortError):
        return "UNKNOWN"
    # The number of a code, or None for OK.
    return _NAMES.get(code or 0, "UNKNOWN")
