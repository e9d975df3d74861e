"""Connect's protocol, version 1: unary calls as plain POST, streams as envelopes."""

import base64
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from google.protobuf import json_format
from google.rpc import error_details_pb2
from starlette.datastructures import Headers
from starlette.responses import Response

from gateway_svc.faults import HttpRefusal, error_headers, http_status, malformed
from gateway_svc.http_call import HttpCall
from gateway_svc.json_message import by_size, message_from_json, message_to_json, read_json
from gateway_svc.protocols.envelopes import envelope, messages_of, one_message
from gateway_svc.upstream import Method
from tandem.chassis.calls.status import plain_metadata, rich_status
from tandem.errors import TandemError

UNARY_TYPES = {"application/json", "application/proto"}
STREAM_TYPES = {"application/connect+json", "application/connect+proto"}

_END_STREAM = 0x02
_DETAILS = (error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo)


def check_version(headers: Headers) -> None:
    """Raises RequestMalformed for a version that the caller names and that is not this one."""
    if (version := headers.get("connect-protocol-version", "1")) != "1":
        raise malformed(f"Connect's version {version[:16]!a} is not served", "send 1")


async def unary(call: HttpCall, kind: str) -> Response:
    """Answers one message with one.

    A stream of requests may be called with one: a batch of IngestItems is a call of its own.
    """
    method = call.operation.method
    if method.is_answer_stream and not method.is_request_stream:
        raise HttpRefusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"{method.name} answers with a stream; send {' or '.join(sorted(STREAM_TYPES))}",
        )
    is_json = kind.endswith("json")
    request = await _request(method, call.body, is_json=is_json)
    answer = await call.upstream.answer(method, request, call.context)
    content = await _answer(method, answer, is_json=is_json)
    return Response(content, media_type=kind)


async def stream(call: HttpCall, kind: str) -> Response:
    """Answers with a stream; its requests, if it has several, are all in the body."""
    method = call.operation.method
    if not method.is_answer_stream:
        raise HttpRefusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"{method.name} answers once; send {' or '.join(sorted(UNARY_TYPES))}",
        )
    is_json = kind.endswith("json")
    messages = messages_of(call.body) if method.is_request_stream else [one_message(call.body)]
    requests = [await _request(method, message, is_json=is_json) for message in messages]

    async def piece(message: bytes) -> bytes:
        return envelope(await _answer(method, message, is_json=is_json))

    return call.streamed(method, requests, piece, _end, kind)


def refusal(error: TandemError | HttpRefusal, kind: str) -> Response:
    """Returns the response for an error before any answer."""
    if isinstance(error, HttpRefusal):
        members, status, headers = _http_members(error), int(error.status), error.headers
    else:
        members, status = error_members(error), http_status(error)
        headers = {**error_headers(error), **dict(plain_metadata(error))}
    if kind in STREAM_TYPES and isinstance(error, TandemError):
        # A stream's status is 200, and its end says how it ended.
        return Response(_end(error), 200, {}, kind)
    return Response(json.dumps(members), status, headers, "application/json")


def _end(error: TandemError | None) -> bytes:
    """Returns the end of a stream: the error, and what clients show as its metadata."""
    members: dict[str, Any] = {}
    if error is not None:
        metadata = {name: [value] for name, value in plain_metadata(error)}
        members = {"error": error_members(error), "metadata": metadata}
    return envelope(json.dumps(members).encode(), _END_STREAM)


def error_members(error: TandemError) -> Mapping[str, Any]:
    """Returns Connect's JSON of an error, with the details that gRPC has."""
    details = []
    for packed in rich_status(error).details:
        name = packed.type_url.rpartition("/")[2]
        found = next(each for each in _DETAILS if each.DESCRIPTOR.full_name == name)()
        packed.Unpack(found)
        value = base64.b64encode(packed.value).decode().rstrip("=")
        debug = json_format.MessageToDict(found)
        details.append({"type": name, "value": value, "debug": debug})
    return {
        "code": error.status.lower(),
        "message": error.message.encode("utf-8", "replace").decode(),
        "details": details,
    }


def _http_members(refusal: HttpRefusal) -> Mapping[str, Any]:
    is_unknown = refusal.status in (HTTPStatus.NOT_FOUND, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    code = "unimplemented" if is_unknown else "invalid_argument"
    return {"code": code, "message": refusal.detail}


async def _request(method: Method, message: bytes, *, is_json: bool) -> bytes:
    if not is_json:
        return message
    value = await read_json(message, method.limit)
    parsed = await message_from_json(value, method.request_class, byte_count=len(message))
    return parsed.SerializeToString()


async def _answer(method: Method, answer: bytes, *, is_json: bool) -> bytes:
    if not is_json:
        return answer
    return await by_size(
        len(answer), lambda: message_to_json(method.answer_class.FromString(answer))
    )
