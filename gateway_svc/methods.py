"""Lists the public methods of the contract, which the orchestrator serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tandem.contract.request_limits import RequestLimit, request_limit
from tandem.v1 import content_service_pb2, model_service_pb2, search_service_pb2

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


def search_method(name: str) -> Method:
    """Returns a method of SearchService."""
    return METHODS[f"/{SERVICE_NAMES[0]}/{name}"]


def content_method(name: str) -> Method:
    """Returns a method of ContentService."""
    return METHODS[f"/{SERVICE_NAMES[1]}/{name}"]


def model_method(name: str) -> Method:
    """Returns a method of ModelService."""
    return METHODS[f"/{SERVICE_NAMES[2]}/{name}"]
