"""Answers POST /tandem.v1.Service/Method in the protocol that the content type names."""

from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from gateway_svc.faults import HttpRefusal, problem
from gateway_svc.http_call import HttpCall, Operation, content_type, describe, json_size
from gateway_svc.openapi import TEXT, Schema, json_answer, json_body, problem_answer, reference
from gateway_svc.protocols import connect, grpc_web
from gateway_svc.upstream import METHODS, Method
from tandem.errors import TandemError

_GRPC_WEB_TYPES = grpc_web.BINARY_TYPES | grpc_web.TEXT_TYPES
_CONNECT_TYPES = connect.UNARY_TYPES | connect.STREAM_TYPES
# A prefix, and trailers that say nothing.
_FRAMING_BYTES = 4 * 1024


def rpc_routes() -> dict[str, Operation]:
    """Returns an operation of each public method, in every protocol, by its route."""
    return {
        f"POST {path}": Operation(
            method=method,
            name=method.name,
            description=_description(method),
            serve=_serve,
            refuse=_refusal,
            max_body_bytes=_max_body_bytes,
        )
        for path, method in METHODS.items()
    }


async def _serve(call: HttpCall) -> Response:
    call.query()
    kind = content_type(call.request.headers)
    if kind in _GRPC_WEB_TYPES:
        return await grpc_web.answer(call, kind)
    if kind in _CONNECT_TYPES:
        connect.check_version(call.request.headers)
    if kind in connect.UNARY_TYPES:
        return await connect.unary(call, kind)
    if kind in connect.STREAM_TYPES:
        return await connect.stream(call, kind)
    known = ", ".join(sorted(_CONNECT_TYPES | _GRPC_WEB_TYPES))
    raise HttpRefusal(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        f"the content type is not known; send one of {known}",
        {"accept-post": known},
    )


def _max_body_bytes(method: Method, headers: Headers) -> int:
    """Returns the limit of a body; protobuf's is nearer than JSON's and base64's."""
    kind = content_type(headers)
    if kind.endswith("json") or kind in grpc_web.TEXT_TYPES:
        return json_size(method, headers)
    return method.limit.max_bytes + _FRAMING_BYTES


def _description(method: Method) -> Schema:
    """Describes Connect's JSON; a stream of answers has another content type."""
    described = describe(f"{method.name} of the gRPC API, in every protocol.")
    error = {"type": "object", "properties": {"code": TEXT}}
    default = json_answer(error, "Connect's error")
    # An unknown content type names no protocol, so that the error is one of plain HTTP.
    unknown = problem_answer("A content type that is not known")
    unknown["content"] |= default["content"]
    described["responses"] = {"415": unknown, "default": default}
    if not method.is_answer_stream or method.is_request_stream:
        described["requestBody"] = json_body(reference(method.request_class))
        described["responses"]["200"] = json_answer({"type": "object"})
    return described


def _refusal(error: TandemError | HttpRefusal, request: Request) -> Response:
    """Returns an error in the caller's protocol."""
    kind = content_type(request.headers)
    if kind in _GRPC_WEB_TYPES:
        return grpc_web.refusal(error, kind)
    if kind in _CONNECT_TYPES:
        return connect.refusal(error, kind)
    return problem(error)
