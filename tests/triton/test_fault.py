"""Triton's errors by kind: its words are read once, and nothing else depends on a sentence."""

import pytest
from tritonclient.utils import InferenceServerException

from tandem.errors import ModelUnavailable
from tandem.triton.client import TritonClient
from tandem.triton.fault import (
    DEAD_PROCESS,
    TritonFault,
    error_of_fault,
    triton_fault,
)

WORDS = {
    TritonFault.QUEUE_FULL: ("[request id: x] Exceeds maximum queue size", "UNAVAILABLE"),
    TritonFault.TIMEOUT: ("Request timeout expired", "UNAVAILABLE"),
    TritonFault.INPUTS_REFUSED: ("unexpected shape for input", "StatusCode.INVALID_ARGUMENT"),
    TritonFault.RESTRICTED: ("This protocol is restricted, expecting header x", "UNAVAILABLE"),
    TritonFault.LEAVING: (
        "Request for unknown model: 'm' has no available versions",
        "UNAVAILABLE",
    ),
    TritonFault.PROCESS_DEAD: ("Stub process 'm_0' is not healthy.", "INTERNAL"),
    TritonFault.UNREACHABLE: ("failed to connect to all addresses", "UNAVAILABLE"),
}


def told(message: str, status: str) -> InferenceServerException:
    """Returns what the client library raises."""
    return InferenceServerException(message, status=status)


@pytest.mark.parametrize("fault", TritonFault)
def test_each_kind_is_recognised_by_its_text(fault: TritonFault) -> None:
    """And made one of our errors."""
    error = told(*WORDS[fault])

    assert triton_fault(error) is fault
    assert error_of_fault(fault, error, "m").message


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
