"""Calls the public methods of the orchestrator as any client would, with serialized messages.

In the orchestrator's own process the channel is a direct one: the calls meet the same interceptors.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.calls.channels import call, call_metadata
from tandem.chassis.calls.status import error_from_rpc
from tandem.chassis.serve.direct_channel import DirectChannel
from tandem.contract.deadline import Deadline
from tandem.contract.methods import RequestLimit, request_limit
from tandem.errors import ServiceUnavailable
from tandem.v1 import content_service_pb2, model_service_pb2, search_service_pb2

_NAME = "orchestrator"
_CHECK_SECONDS = 2.0
_SERVICES = (
    search_service_pb2.DESCRIPTOR.services_by_name["SearchService"],
    content_service_pb2.DESCRIPTOR.services_by_name["ContentService"],
    model_service_pb2.DESCRIPTOR.services_by_name["ModelService"],
)


@dataclass(frozen=True, slots=True)
class Method:
    """One public method."""

    path: str
    """For example "/tandem.v1.SearchService/SearchItems"."""
    request_class: type[Message]
    answer_class: type[Message]
    is_request_stream: bool
    is_answer_stream: bool
    limit: RequestLimit
    """The limits of one request, in protobuf."""

    @property
    def name(self) -> str:
        """Returns the last part of the path."""
        return self.path.rpartition("/")[2]


def _method(descriptor: MethodDescriptor) -> Method:
    path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
    return Method(
        path,
        GetMessageClass(descriptor.input_type),
        GetMessageClass(descriptor.output_type),
        descriptor.client_streaming,
        descriptor.server_streaming,
        request_limit(path),
    )


METHODS: Mapping[str, Method] = {
    method.path: method for service in _SERVICES for method in map(_method, service.methods)
}
"""The public methods by their paths."""

SERVICE_NAMES = tuple(service.full_name for service in _SERVICES)


def method_named(name: str) -> Method:
    """Returns a public method by the last part of its path, which no other has."""
    [found] = [method for method in METHODS.values() if method.name == name]
    return found


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a call carries from the gateway's caller to the orchestrator."""

    deadline: Deadline
    headers: Mapping[str, str] = field(default_factory=dict)
    """The caller's token, if it has one."""


class Upstream:
    """The orchestrator."""

    def __init__(self, channel: grpc.aio.Channel | DirectChannel) -> None:
        self._health = health_pb2_grpc.HealthStub(channel)
        self._calls: dict[str, Any] = {path: _opened(channel, METHODS[path]) for path in METHODS}

    async def answer(self, method: Method, request: bytes, context: CallContext) -> bytes:
        """Returns the answer of a unary method, or the first one of a stream.

        Raises `TandemError`.
        """
        if method.is_answer_stream or method.is_request_stream:
            async for answer in self.answers(method, [request], context):
                return answer
            raise ServiceUnavailable(service=_NAME, why="it ended a stream without an answer")
        opened: Callable[..., Awaitable[bytes]] = self._calls[method.path]
        return await call(
            opened,
            request,
            service=_NAME,
            timeout_seconds=context.deadline.left_for("a wait for the request"),
            headers=context.headers,
        )

    async def answers(
        self, method: Method, requests: Iterable[bytes], context: CallContext
    ) -> AsyncGenerator[bytes, None]:
        """Yields the answers of a method that answers with a stream; raises `TandemError`."""
        sent = list(requests)
        opened = self._calls[method.path](
            iter(sent) if method.is_request_stream else sent[0],
            timeout=context.deadline.left_for("a wait for the request"),
            metadata=call_metadata(context.headers),
        )
        try:
            async for answer in opened:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, _NAME) from error
        finally:
            opened.cancel()

    async def check(self) -> None:
        """Raises ServiceUnavailable unless the orchestrator is serving."""
        response: health_pb2.HealthCheckResponse = await call(
            self._health.Check,
            health_pb2.HealthCheckRequest(service=SERVICE_NAMES[0]),
            service=_NAME,
            timeout_seconds=_CHECK_SECONDS,
        )
        if response.status != health_pb2.HealthCheckResponse.SERVING:
            raise ServiceUnavailable(service=_NAME, why="it is not serving")


def _opened(channel: grpc.aio.Channel | DirectChannel, method: Method) -> Any:  # noqa: ANN401 (gRPC's own)
    if method.is_request_stream:
        return channel.stream_stream(method.path)
    return (channel.unary_stream if method.is_answer_stream else channel.unary_unary)(method.path)
