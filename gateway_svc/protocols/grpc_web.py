"""gRPC-Web: messages and trailers in one body, for browsers; in binary or in base64."""

import base64
import binascii
import re
from collections.abc import Callable
from urllib.parse import quote

import grpc
from starlette.responses import Response

from gateway_svc.faults import HttpRefusal, malformed
from gateway_svc.http_call import HttpCall
from gateway_svc.protocols.envelopes import envelope, messages_of, one_message
from tandem.chassis.calls.status import plain_metadata, rich_status
from tandem.errors import InternalFault, TandemError

BINARY_TYPES = {"application/grpc-web", "application/grpc-web+proto"}
TEXT_TYPES = {"application/grpc-web-text", "application/grpc-web-text+proto"}

_TRAILERS = 0x80
# Base64 up to its padding.
_RUN = re.compile(rb"[^=]+={0,2}")
_OK = "grpc-status:0\r\n"


async def answer(call: HttpCall, kind: str) -> Response:
    """Answers a call of any method; a stream of requests has all of them in the body."""
    method, encode = call.operation.method, _encoder(kind)
    body = _decoded(call.body) if kind in TEXT_TYPES else call.body
    if not method.is_answer_stream:
        found = await call.upstream.answer(method, one_message(body), call.context)
        whole = envelope(found) + envelope(_OK.encode(), _TRAILERS)
        return Response(encode(whole), media_type=kind)
    requests = list(messages_of(body)) if method.is_request_stream else [one_message(body)]

    async def piece(message: bytes) -> bytes:
        return encode(envelope(message))

    def end(error: TandemError | None) -> bytes:
        trailers = _OK if error is None else _trailers(error)
        return encode(envelope(trailers.encode(), _TRAILERS))

    return call.streamed(method, requests, piece, end, kind)


def refusal(error: TandemError | HttpRefusal, kind: str) -> Response:
    """Returns the response for an error before any answer: its trailers."""
    if isinstance(error, HttpRefusal):
        return Response(error.detail, int(error.status), error.headers, "text/plain")
    return Response(_encoder(kind)(envelope(_trailers(error).encode(), _TRAILERS)), media_type=kind)


def _encoder(kind: str) -> Callable[[bytes], bytes]:
    return base64.b64encode if kind in TEXT_TYPES else bytes


def _decoded(body: bytes) -> bytes:
    """Returns the bytes of base64, which may be padded after each message."""
    runs = _RUN.findall(body)
    try:
        if sum(map(len, runs)) < len(body):
            raise ValueError("padding without base64")
        return b"".join(base64.b64decode(run, validate=True) for run in runs)
    except (binascii.Error, ValueError):
        raise malformed(
            "the body is not base64", "send base64, or bytes as application/grpc-web+proto"
        ) from None


def _trailers(error: TandemError) -> str:
    status = rich_status(error)
    details = base64.b64encode(status.SerializeToString()).decode().rstrip("=")
    code = getattr(grpc.StatusCode, error.status, grpc.StatusCode[InternalFault.status])
    lines = {
        "grpc-status": str(code.value[0]),
        "grpc-message": quote(status.message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        "grpc-status-details-bin": details,
        **dict(plain_metadata(error)),
    }
    return "".join(f"{name}:{value}\r\n" for name, value in lines.items())
