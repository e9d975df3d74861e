"""The contract as the protos have it, so that no test can forget a method that came later."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from tandem import v1

# What grpc.aio's client says instead of a stream's refusal that came while it was still sending.
OWN_ERROR = "Internal error from Core"


def contract_methods() -> dict[str, MethodDescriptor]:
    """Returns every method of every service of tandem.v1, by the path of its calls."""
    files: list[FileDescriptor] = [
        importlib.import_module(module.name).DESCRIPTOR
        for module in pkgutil.iter_modules(v1.__path__, "tandem.v1.")
        if module.name.endswith("_pb2")
    ]
    return {
        f"/{service.full_name}/{method.name}": method
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }


def request_in_index(method: MethodDescriptor, index_id: str) -> Any:
    """Returns a request with nothing in it but the index, wherever it speaks of one."""
    return _in_index(GetMessageClass(method.input_type)(), index_id)


def speaks_of_index(method: MethodDescriptor) -> bool:
    """Says whether a request can name an index."""
    return bool(request_in_index(method, "scenes").ByteSize())


def arity(method: MethodDescriptor) -> str:
    """Returns gRPC's word for which sides stream, such as "unary_stream"."""
    return f"{_side(method.client_streaming)}_{_side(method.server_streaming)}"


async def code_of(
    channel: grpc.aio.Channel,
    path: str,
    method: MethodDescriptor,
    request: object,
    metadata: Mapping[str, str],
    *,
    timeout_seconds: float = 10.0,
) -> grpc.StatusCode:
    """Makes one call, reads it to its end, and returns its status."""
    call = getattr(channel, arity(method))(
        path,
        request_serializer=type(request).SerializeToString,  # type: ignore[attr-defined]
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    while True:
        sent = _one(request) if method.client_streaming else request
        running = call(sent, metadata=tuple(metadata.items()), timeout=timeout_seconds)
        try:
            if method.server_streaming:
                async for _ in running:
                    pass
            else:
                await running
        except grpc.aio.AioRpcError as error:
            if error.details() == OWN_ERROR:
                continue
            return error.code()
        return grpc.StatusCode.OK


async def _one(request: object) -> AsyncIterator[object]:
    yield request


def _in_index(message: Any, index_id: str) -> Any:
    fields = message.DESCRIPTOR.fields_by_name
    if "index_id" in fields:
        message.index_id = index_id
    if "search" in fields:
        _in_index(message.search, index_id)
    if "searches" in fields:
        _in_index(message.searches.add(), index_id)
    return message


def _side(is_streaming: bool) -> str:
    return "stream" if is_streaming else "unary"
