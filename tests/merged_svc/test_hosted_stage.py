"""Calls to a stage of this process: errors and counts as over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from merged_svc.hosted_stage import hosted_stage
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.content import Content, TextContent
from tandem.contract.deadline import Deadline
from tandem.errors import DeadlineExceeded, InternalFault, ModelUnavailable
from tandem.stages.encoding import EncodedBatch, Encoder

METHOD = "EncodeContents"


class FailingEncoder:
    """Fails, or hangs, or answers, by the number of the contents."""

    async def encode(
        self, contents: Sequence[Content], deadline: Deadline, **_: object
    ) -> EncodedBatch:
        """Answers."""
        match len(contents):
            case 1:
                raise ModelUnavailable(model="joint_encoder", why="it does not answer")
            case 2:
                raise KeyError("an internal fault")
            case 3:
                async with deadline.kept("it"):
                    await asyncio.Event().wait()
        return EncodedBatch([], "abc")


def hosted(name: str) -> Encoder:
    """Returns the encoder of a service of that name."""
    return hosted_stage(cast(Encoder, FailingEncoder()), name)


async def encode(to: Encoder, count: int, timeout_seconds: float = 60.0) -> str:
    """Calls as the orchestrator does."""
    contents = [TextContent("two dogs")] * count
    return (await to.encode(contents, Deadline.after(timeout_seconds))).fingerprint


def counted(name: str, code: str) -> float | None:
    """Returns how many calls ended with the code."""
    labels = {"service": name, "method": METHOD, "code": code}
    return REGISTRY.get_sample_value("tandem_rpc_duration_seconds_count", labels)


async def test_calls_are_counted_under_the_services_own_name() -> None:
    """As its own process would; nothing stays in flight."""
    to = hosted("hosted-counted")

    assert await encode(to, 0) == "abc"
    assert await encode(to, 0) == "abc"

    assert counted("hosted-counted", "OK") == 2
    in_flight = {"service": "hosted-counted"}
    assert REGISTRY.get_sample_value("tandem_rpc_inflight_count", in_flight) == 0


async def test_named_errors_pass_and_others_become_an_internal_fault() -> None:
    """A search degrades by InternalFault, and would end by KeyError."""
    to = hosted("hosted-faults")

    with pytest.raises(ModelUnavailable):
        await encode(to, 1)
    with pytest.raises(InternalFault, match="EncodeContents failed"):
        await encode(to, 2)

    assert counted("hosted-faults", "UNAVAILABLE") == 1
    assert counted("hosted-faults", "INTERNAL") == 1
    refused = {"service": "hosted-faults", "method": METHOD, "reason": "MODEL_UNAVAILABLE"}
    assert REGISTRY.get_sample_value("tandem_rpc_refusals_total", refused) == 1


async def test_a_late_answer_is_deadline_exceeded_and_a_caller_may_give_up() -> None:
    to = hosted("hosted-late")

    with pytest.raises(DeadlineExceeded):
        await encode(to, 3, timeout_seconds=0.01)
    waiting = asyncio.create_task(encode(to, 3))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert counted("hosted-late", "DEADLINE_EXCEEDED") == 1
    assert counted("hosted-late", "CANCELLED") == 1
