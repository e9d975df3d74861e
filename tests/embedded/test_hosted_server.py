"""Calls to a service of this process: errors, counts and deadlines as over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from embedded.hosted_server import HostedServer
from embedded.local_server import LocalChannel
from tandem.chassis.calls.channels import call
from tandem.chassis.health.health import Health
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.errors import DeadlineExceeded, InternalFault, ModelUnavailable
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1 import encoder_service_pb2_grpc

METHOD = "EncodeContents"


class Encoder(encoder_service_pb2_grpc.EncoderServiceServicer):
    """Fails, or hangs, or answers, by the number of the request's contents."""

    async def EncodeContents(
        self, request: pb.EncodeContentsRequest, _: Any
    ) -> pb.EncodeContentsResponse:
        """Answers."""
        match len(request.contents):
            case 1:
                raise ModelUnavailable(model="joint_encoder", why="it does not answer")
            case 2:
                raise KeyError("a fault of ours")
            case 3:
                await asyncio.Event().wait()
        return pb.EncodeContentsResponse(model_fingerprint="abc")


def channel(name: str) -> LocalChannel:
    """Returns a channel to a server of that name."""
    server = HostedServer(name)
    encoder_service_pb2_grpc.add_EncoderServiceServicer_to_server(Encoder(), server)
    return LocalChannel(server)


async def encode(to: LocalChannel, count: int, timeout_seconds: float = 60.0) -> str:
    """Calls as the orchestrator does."""
    request = pb.EncodeContentsRequest()
    for _ in range(count):
        request.contents.add(text="two dogs")
    stub = encoder_service_pb2_grpc.EncoderServiceStub(to)
    answer: pb.EncodeContentsResponse = await call(
        stub.EncodeContents, request, service="encoder", timeout_seconds=timeout_seconds
    )
    return answer.model_fingerprint


def counted(name: str, code: str) -> float | None:
    """Returns how many calls ended with the code."""
    labels = {"service": name, "method": METHOD, "code": code}
    return REGISTRY.get_sample_value("tandem_rpc_duration_seconds_count", labels)


async def test_calls_are_counted_under_the_services_own_name() -> None:
    """As its own process would; nothing stays in flight."""
    to = channel("hosted-counted")

    assert await encode(to, 0) == "abc"
    assert await encode(to, 0) == "abc"

    assert counted("hosted-counted", "OK") == 2
    in_flight = {"service": "hosted-counted"}
    assert REGISTRY.get_sample_value("tandem_rpc_inflight_count", in_flight) == 0


async def test_named_errors_pass_and_others_become_an_internal_fault() -> None:
    """A search degrades by InternalFault, and would end by KeyError."""
    to = channel("hosted-faults")

    with pytest.raises(ModelUnavailable):
        await encode(to, 1)
    with pytest.raises(InternalFault, match="EncodeContents failed"):
        await encode(to, 2)

    assert counted("hosted-faults", "UNAVAILABLE") == 1
    assert counted("hosted-faults", "INTERNAL") == 1
    refused = {"service": "hosted-faults", "method": METHOD, "reason": "MODEL_UNAVAILABLE"}
    assert REGISTRY.get_sample_value("tandem_rpc_refusals_total", refused) == 1


async def test_a_late_answer_is_deadline_exceeded_and_a_caller_may_give_up() -> None:
    """The servicer's work is cancelled in both cases."""
    to = channel("hosted-late")

    with pytest.raises(DeadlineExceeded):
        await encode(to, 3, timeout_seconds=0.01)
    waiting = asyncio.create_task(encode(to, 3))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert counted("hosted-late", "DEADLINE_EXCEEDED") == 1
    assert counted("hosted-late", "CANCELLED") == 1


async def test_health_checks_take_the_same_way_and_are_not_counted() -> None:
    """The orchestrator waits for its services at the start."""
    server = HostedServer("hosted-health")
    notes: list[bool] = []
    health = Health("hosted-health", ["a"], notes.append)
    health.register(server)
    stub = health_pb2_grpc.HealthStub(LocalChannel(server))

    async def status() -> int:
        answer = await call(
            stub.Check, health_pb2.HealthCheckRequest(), service="encoder", timeout_seconds=60.0
        )
        return int(answer.status)

    assert await status() == health_pb2.HealthCheckResponse.NOT_SERVING
    watch = asyncio.create_task(health.watch(lambda: asyncio.sleep(0), None))
    await watch
    assert await status() == health_pb2.HealthCheckResponse.SERVING
    assert notes == [False, True]
    labels = {"service": "hosted-health", "method": "Check", "code": "OK"}
    assert REGISTRY.get_sample_value("tandem_rpc_duration_seconds_count", labels) is None
