"""Throws made requests at one method, and says which of its answers no request may get."""

import asyncio
import importlib
import pkgutil
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tandem import v1
from tandem.v1 import error_reason_pb2
from tests.support.fuzz.wire_maker import WireMaker

ALLOWED = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
)
# Of one item among several: what its own status would be.
_ITEM_FAULTS = frozenset(
    {error_reason_pb2.ERROR_REASON_INTERNAL, error_reason_pb2.ERROR_REASON_MODEL_OUTPUT_INVALID}
)
CALL_SECONDS = 2.0
# Alone, and with so much time: what is not answered then hangs.
PATIENT_SECONDS = 30.0
CONCURRENT_COUNT = 6
# Some streams never end: who watches a health waits for its next change.
_READ_COUNT = 20
# What grpc.aio's own client says where it fails to send on.
_OWN_ERROR = "Internal error from Core"
# A number that no version of the model has: it may have one in a second, so UNAVAILABLE is right.
_UNKNOWN_VERSION = re.compile(r"version -?\d+ is not available here|there is no version -?\d+")


@dataclass(frozen=True, slots=True)
class Fault:
    """A request that was answered as none may be."""

    method: str
    number: int
    requests: Sequence[bytes]
    told: str

    def __str__(self) -> str:
        shown = [request[:150] for request in self.requests]
        return f"{self.method} request {self.number}: {self.told}: {shown}"


@dataclass(slots=True)
class Tally:
    """What became of a method's requests."""

    codes: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    slowest_seconds: float = 0.0
    slowest: Sequence[bytes] = ()


def told_apart(faults: Sequence[Fault]) -> list[str]:
    """Returns each kind of fault once, with how often it was met and its first request."""
    counts = Counter((fault.method, fault.told) for fault in faults)
    first = {(fault.method, fault.told): fault for fault in reversed(faults)}
    return [f"{count} x {first[kind]}" for kind, count in counts.most_common()]


async def service_names(channel: grpc.aio.Channel) -> list[str]:
    """Returns the full names of the services there, as its reflection tells them."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    async for response in stub.ServerReflectionInfo(iter([asked]), timeout=PATIENT_SECONDS):
        return [service.name for service in response.list_services_response.service]
    raise AssertionError("the reflection does not answer")


def methods(service_name: str) -> list[MethodDescriptor]:
    """Returns every method of a service."""
    # The pool knows what was imported, and a service may be newer than this file.
    for module in pkgutil.iter_modules(v1.__path__, "tandem.v1."):
        importlib.import_module(module.name)
    return list(descriptor_pool.Default().FindServiceByName(service_name).methods)


def made_requests(
    method: MethodDescriptor, valid: Sequence[Message], known: Sequence[str | bytes], seed: int
) -> Iterator[list[bytes]]:
    """Yields one stream of requests after another, without end."""
    maker = WireMaker(seed, known)
    descriptor = method.input_type
    empty = [message_factory.GetMessageClass(descriptor)()]
    while True:
        count = maker.chance.choice([1, 1, 2, 3]) if method.client_streaming else 1
        yield [_request(maker, descriptor, valid or empty) for _ in range(count)]


def _request(maker: WireMaker, descriptor: Descriptor, valid: Sequence[Message]) -> bytes:
    message = maker.chance.choice(valid)
    roll = maker.chance.random()
    if roll < 0.50:
        return maker.changed(message)
    if roll < 0.72:
        return maker.message(descriptor)
    if roll < 0.87:
        return maker.damaged(message.SerializeToString())
    if roll < 0.93:
        return maker.chance.randbytes(maker.chance.choice([0, 1, 2, 8, 100, 5_000]))
    if roll < 0.97:
        return maker.deep(descriptor)
    if roll < 0.98:
        return maker.large(descriptor)
    return message.SerializeToString()


async def fuzz(
    channel: grpc.aio.Channel,
    method: MethodDescriptor,
    requests: Iterator[list[bytes]],
    count: int,
) -> Tally:
    """Sends the first `count` of the requests, some at a time."""
    tally = Tally()
    numbered = zip(range(count), requests, strict=False)

    async def send() -> None:
        for number, stream in numbered:
            start_time = time.monotonic()
            code, told = await _outcome(channel, method, stream, CALL_SECONDS)
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                code, told = await _outcome(channel, method, stream, PATIENT_SECONDS)
                if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                    told = f"hangs for {PATIENT_SECONDS:.0f} s"
            tally.codes[code.name] += 1
            seconds = time.monotonic() - start_time
            if seconds > tally.slowest_seconds:
                tally.slowest_seconds, tally.slowest = seconds, stream
            if told:
                tally.faults.append(Fault(method.full_name, number, stream, told))

    await asyncio.gather(*(send() for _ in range(CONCURRENT_COUNT)))
    return tally


async def _outcome(
    channel: grpc.aio.Channel,
    method: MethodDescriptor,
    requests: Sequence[bytes],
    timeout_seconds: float,
) -> tuple[grpc.StatusCode, str]:
    """Returns the call's code, and what is wrong with the answer."""
    # One message is a stream of one: on the wire a method's arity does not show.
    call = channel.stream_stream(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=bytes,
        response_deserializer=bytes,
    )(iter(requests), timeout=timeout_seconds)
    told, response_count = "", 0
    try:
        async for response in call:
            told = told or _item_fault(method.output_type, response)
            response_count += 1
            if method.server_streaming and response_count >= _expected_count(method, requests):
                call.cancel()
                return grpc.StatusCode.OK, told
    except grpc.aio.AioRpcError as error:
        code = error.code()
        if error.details() == _OWN_ERROR:
            # The server refused the first message of a stream while we were sending the second.
            return await _outcome(channel, method, requests[:-1], timeout_seconds)
        is_allowed = code in ALLOWED or (
            code is grpc.StatusCode.UNAVAILABLE and _UNKNOWN_VERSION.search(error.details() or "")
        )
        return code, told or ("" if is_allowed else f"{code.name}: {error.details()}")
    return grpc.StatusCode.OK, told


def _expected_count(method: MethodDescriptor, requests: Sequence[bytes]) -> int:
    is_endless = method.name == "Watch" or method.client_streaming
    return len(requests) if is_endless else _READ_COUNT


def _item_fault(descriptor: Descriptor, response: bytes) -> str:
    """Returns what is wrong with one item's error inside a good answer, or with the answer."""
    try:
        message = message_factory.GetMessageClass(descriptor).FromString(response)
    except DecodeError as error:
        return f"an answer that does not parse: {error}"
    return next(
        (
            f"an item's {error_reason_pb2.ErrorReason.Name(each.reason)}: {each.message}"
            for each in _item_errors(message)
            if each.reason in _ITEM_FAULTS
        ),
        "",
    )


def _item_errors(message: Message) -> Iterator[error_reason_pb2.ItemError]:
    if isinstance(message, error_reason_pb2.ItemError):
        yield message
    for each, value in message.ListFields():
        if not each.message_type or each.message_type.GetOptions().map_entry:
            continue
        for inside in value if each.is_repeated else [value]:
            yield from _item_errors(inside)
