"""Answers POST /tandem.v1.Service/Method in the protocol that the content type names."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from gateway_svc.faults import HttpRefusal
from gateway_svc.http_call import HttpCall, HttpEndpoint, query_parameters
from gateway_svc.methods import Method
from gateway_svc.openapi.schemas import Schemas, json_answer, json_body, problem_answer
from gateway_svc.problem import problem
from gateway_svc.protocols import connect, grpc_web
from gateway_svc.upstream import Upstream
from tandem.errors import TandemError

_GRPC_WEB_TYPES = grpc_web.BINARY_TYPES | grpc_web.TEXT_TYPES
_CONNECT_TYPES = connect.UNARY_TYPES | connect.STREAM_TYPES
# A prefix, and trailers that say nothing.
_FRAMING_BYTES = 4 * 1024


class RpcEndpoint(HttpEndpoint):
    """One public method, in every protocol."""

    def __init__(self, method: Method, upstream: Upstream) -> None:
        super().__init__(method)
        self._upstream = upstream

    def max_body_bytes(self, headers: Headers) -> int:
        """Returns the limit of a body; protobuf's is nearer than JSON's and base64's."""
        if _kind(headers).endswith("json") or _kind(headers) in grpc_web.TEXT_TYPES:
            return super().max_body_bytes(headers)
        return self.method.limit.max_bytes + _FRAMING_BYTES

    async def serve(self, call: HttpCall) -> Response:
        """Returns the response; raises TandemError or HttpRefusal."""
        query_parameters(call)
        kind = _kind(call.request.headers)
        if kind in _GRPC_WEB_TYPES:
            return await grpc_web.answer(self._upstream, self.method, call, kind)
        if kind in _CONNECT_TYPES:
            connect.check_version(call.request.headers)
        if kind in connect.UNARY_TYPES:
            return await connect.unary(self._upstream, self.method, call, kind)
        if kind in connect.STREAM_TYPES:
            return await connect.stream(self._upstream, self.method, call, kind)
        known = ", ".join(sorted(_CONNECT_TYPES | _GRPC_WEB_TYPES))
        raise HttpRefusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the content type is not known; send one of {known}",
            {"accept-post": known},
        )

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes Connect's JSON; a stream of answers has another content type."""
        error = {"type": "object", "properties": {"code": {"type": "string"}}}
        default = json_answer(error, "Connect's error")
        # An unknown content type names no protocol, so that the error is one of plain HTTP.
        unknown = problem_answer("A content type that is not known")
        unknown["content"] |= default["content"]
        refusals = {"415": unknown, "default": default}
        if self.method.is_answer_stream and not self.method.is_request_stream:
            return {"responses": refusals}
        return {
            "requestBody": json_body(schemas.of(self.method.request_class)),
            "responses": {"200": json_answer({"type": "object"}), **refusals},
        }

    def refuse(self, error: TandemError | HttpRefusal, request: Request) -> Response:
        """Returns an error in the caller's protocol."""
        kind = _kind(request.headers)
        if kind in _GRPC_WEB_TYPES:
            return grpc_web.refusal(error, kind)
        if kind in _CONNECT_TYPES:
            return connect.refusal(error, kind)
        return problem(error)


def _kind(headers: Headers) -> str:
    """Returns the content type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()
