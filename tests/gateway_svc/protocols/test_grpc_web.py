"""gateway_svc.protocols.grpc_web: what browsers send in place of gRPC."""

from __future__ import annotations

import base64
import struct

import pytest
from google.rpc import error_details_pb2, status_pb2

from gateway_svc.upstream import METHODS
from tandem.v1 import search_service_pb2 as pb
from tests.support.gateway_svc.running import SEARCH, STREAM, Gateway, found_one, gateway, no_index

INGEST = "/tandem.v1.SearchService/IngestItems"

pytestmark = pytest.mark.usefixtures("each_shape")

BINARY = "application/grpc-web+proto"
TEXT = "application/grpc-web-text"


def framed(message: bytes) -> bytes:
    """Returns a message with its prefix."""
    return struct.pack("!BI", 0, len(message)) + message


def frames(body: bytes) -> tuple[list[bytes], dict[str, str]]:
    """Returns the messages of a body, and its trailers."""
    messages, trailers, position = [], {}, 0
    while position < len(body):
        flags, size = struct.unpack_from("!BI", body, position)
        payload = body[position + 5 : position + 5 + size]
        position += 5 + size
        if flags == 0x80:
            lines = payload.decode().strip().split("\r\n")
            trailers = dict(line.split(":", 1) for line in lines)
        else:
            messages.append(payload)
    return messages, trailers


async def called(served: Gateway, path: str, body: bytes, kind: str = BINARY) -> bytes:
    """Returns the body of an answer, of which the status is always 200."""
    response = await served.client.post(path, content=body, headers={"content-type": kind})
    assert response.status_code == 200, response.text
    assert (response.headers.get("x-accel-buffering") == "no") == (path in (STREAM, INGEST))
    return response.content


def search(text: str) -> pb.SearchItemsRequest:
    """Returns a search for a text."""
    request = pb.SearchItemsRequest(index_id="scenes")
    request.query.text = text
    return request


async def test_a_search_has_one_message_and_its_trailers() -> None:
    async with gateway(found_one) as served:
        body = await called(served, SEARCH, framed(search("a dog").SerializeToString()))

    [message], trailers = frames(body)
    assert pb.SearchItemsResponse.FromString(message).items[0].item_id == "a dog"
    assert trailers == {"grpc-status": "0"}


async def test_a_streamed_search_has_two_messages() -> None:
    request = pb.StreamSearchItemsRequest(search=search("a dog"))
    async with gateway(found_one) as served:
        body = await called(served, STREAM, framed(request.SerializeToString()))

    messages, trailers = frames(body)
    phases = [pb.StreamSearchItemsResponse.FromString(each).phase for each in messages]
    assert phases == [pb.SEARCH_PHASE_RETRIEVED, pb.SEARCH_PHASE_FINAL]
    assert trailers["grpc-status"] == "0"


@pytest.mark.parametrize("path", [SEARCH, STREAM])
async def test_an_error_is_in_the_trailers_as_grpc_has_it(path: str) -> None:
    async with gateway(no_index) as served:
        body = await called(served, path, framed(b""))

    messages, trailers = frames(body)
    status = status_pb2.Status.FromString(
        base64.b64decode(trailers["grpc-status-details-bin"] + "==")
    )
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (messages, trailers["grpc-status"]) == ([], "5")
    assert trailers["tandem-reason"] == info.reason == "INDEX_NOT_FOUND"


async def test_base64_is_read_and_written_piece_by_piece() -> None:
    request = pb.StreamSearchItemsRequest(search=search("a dog")).SerializeToString()
    prefix, rest = framed(request)[:5], framed(request)[5:]
    padded = base64.b64encode(prefix) + base64.b64encode(rest)
    async with gateway(found_one) as served:
        body = await called(served, STREAM, padded, TEXT)

    pieces = [piece + b"=" * (-len(piece) % 4) for piece in body.replace(b"=", b" ").split()]
    messages, trailers = frames(b"".join(map(base64.b64decode, pieces)))
    assert len(messages) == 2
    assert trailers["grpc-status"] == "0"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\0\0\0", BINARY),
        (b"\0\0\0\0\x09abc", BINARY),
        (b"\1\0\0\0\0", BINARY),
        (framed(b"") + framed(b""), BINARY),
        (b"no base64!", TEXT),
        (b"QQ==Q", TEXT),
    ],
    ids=["prefix", "message", "compressed", "two", "no_base64", "half_base64"],
)
async def test_a_broken_body_is_refused_by_name(body: bytes, kind: str) -> None:
    async with gateway() as served:
        answer = await called(served, SEARCH, body, kind)

    _, trailers = frames(base64.b64decode(answer) if kind == TEXT else answer)
    assert (trailers["grpc-status"], trailers["tandem-reason"]) == ("3", "REQUEST_MALFORMED")
    assert not served.service.requests


async def test_every_public_method_answers() -> None:
    async with gateway() as served:
        for path, method in METHODS.items():
            body = await called(served, path, framed(b"") * (2 if method.is_request_stream else 1))
            messages, trailers = frames(body)
            assert trailers == {"grpc-status": "0"}, method.name
            assert len(messages) == (2 if method.is_answer_stream else 1), method.name
