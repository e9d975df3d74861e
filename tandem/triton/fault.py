"""Classifies Triton's errors, many of which differ only in their text.

Only this module reads that text; all other code uses the kind.
"""

import enum

import grpc

from tandem.errors import (
    DeadlineExceeded,
    InternalFault,
    ModelUnavailable,
    Overloaded,
    TandemError,
)

DEAD_PROCESS = "its process in Triton is dead; restart Triton"


class TritonFault(enum.Enum):
    """Lists why Triton did not answer a call."""

    QUEUE_FULL = enum.auto()
    TIMEOUT = enum.auto()
    INPUTS_REFUSED = enum.auto()
    """The model's config and ours differ: no retry helps."""
    RESTRICTED = enum.auto()
    """The server restricts this protocol."""
    LEAVING = enum.auto()
    """It accepts no more calls for the model, and is shutting down."""
    PROCESS_DEAD = enum.auto()
    """One of the model's processes is dead."""
    UNREACHABLE = enum.auto()
    """No server is there, or there is another fault."""


def triton_fault(error: grpc.RpcError) -> TritonFault:
    """Returns the kind of an error."""
    status, message = error.code(), error.details() or ""
    if "Exceeds maximum queue size" in message:
        return TritonFault.QUEUE_FULL
    if status is grpc.StatusCode.DEADLINE_EXCEEDED or "timeout expired" in message.lower():
        return TritonFault.TIMEOUT
    if status is grpc.StatusCode.INVALID_ARGUMENT:
        return TritonFault.INPUTS_REFUSED
    if "protocol is restricted" in message:
        return TritonFault.RESTRICTED
    if "has no available versions" in message:
        return TritonFault.LEAVING
    if "Stub process" in message and "healthy" in message:
        return TritonFault.PROCESS_DEAD
    return TritonFault.UNREACHABLE


def error_of_fault(fault: TritonFault, error: grpc.RpcError, model: str) -> TandemError:
    """Returns our error for a kind of Triton's."""
    message = error.details() or ""
    match fault:
        case TritonFault.QUEUE_FULL:
            return Overloaded(what=f"Triton's queue of {model}")
        case TritonFault.TIMEOUT:
            return DeadlineExceeded(what=f"the inference of {model}")
        case TritonFault.INPUTS_REFUSED:
            return InternalFault(why=f"model {model} refuses its inputs: {message}")
        case TritonFault.RESTRICTED:
            return InternalFault(why=f"Triton does not let us use model {model}: {message}")
        case TritonFault.LEAVING:
            return ModelUnavailable(model=model, why="its Triton server is shutting down")
        case TritonFault.PROCESS_DEAD:
            return ModelUnavailable(model=model, why=DEAD_PROCESS)
        case TritonFault.UNREACHABLE:
            return ModelUnavailable(model=model, why=message.split("\n", 1)[0] or str(error.code()))
