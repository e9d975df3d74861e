"""Triton's errors by kind: its words are read once, and nothing else depends on a sentence."""

import grpc
import pytest

from tandem.errors import (
    DeadlineExceeded,
    InternalFault,
    ModelUnavailable,
    Overloaded,
    TandemError,
)
from tandem.triton.client import TritonClient
from tandem.triton.fault import (
    DEAD_PROCESS,
    TritonFault,
    error_of_fault,
    triton_fault,
)


def told(message: str, status: str) -> grpc.aio.AioRpcError:
    """Returns what gRPC raises."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode[status], nothing, nothing, details=message)


FAULTS: list[tuple[str, str, str, type[TandemError], str]] = [
    ("QUEUE_FULL", "UNAVAILABLE", "Exceeds maximum queue size", Overloaded, "queue of m"),
    ("TIMEOUT", "UNAVAILABLE", "Request timeout expired", DeadlineExceeded, "inference of m"),
    ("TIMEOUT", "DEADLINE_EXCEEDED", "", DeadlineExceeded, "inference of m"),
    ("INPUTS_REFUSED", "INVALID_ARGUMENT", "unexpected shape", InternalFault, "refuses"),
    ("RESTRICTED", "UNAVAILABLE", "This protocol is restricted", InternalFault, "let us"),
    ("LEAVING", "NOT_FOUND", "'m' has no available versions", ModelUnavailable, "shutting"),
    (
        "PROCESS_DEAD",
        "INTERNAL",
        "Stub process 'm_0' is not healthy.",
        ModelUnavailable,
        "dead",
    ),
    ("UNREACHABLE", "UNAVAILABLE", "Socket closed", ModelUnavailable, "Socket closed"),
]


def test_each_kind_is_recognised_by_its_text() -> None:
    """And becomes an error of its own, which says so."""
    for fault, status, message, expected, words in FAULTS:
        error = told(message, status)

        named = error_of_fault(triton_fault(error), error, "m")

        assert triton_fault(error) is TritonFault[fault]
        assert type(named) is expected
        assert words in named.message


async def test_a_dead_process_is_recognised_by_its_type_and_not_by_its_text() -> None:
    """A model whose own message reads like ours is not held to be dead."""
    client = TritonClient("127.0.0.1:9")
    try:
        quoting = told(f"the model says: {DEAD_PROCESS}", "UNAVAILABLE")
        client._note(triton_fault(quoting), "m")
        client.check_processes()

        client._note(TritonFault.PROCESS_DEAD, "m")
        client._note(TritonFault.TIMEOUT, "m")
        client._note(TritonFault.QUEUE_FULL, "other")
        with pytest.raises(ModelUnavailable, match="m does not answer"):
            client.check_processes()

        client._note(TritonFault.UNREACHABLE, "other")
        client.check_processes()
    finally:
        await client.close()
