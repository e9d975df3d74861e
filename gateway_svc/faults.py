"""Defines refusals that only HTTP has, and answers every error as problem details (RFC 9457)."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from tandem.chassis.telemetry.request_id import current_request_id
from tandem.contract.search.answer_wire import REASON_WIRE
from tandem.errors import (
    MessageTooLarge,
    Overloaded,
    QuotaExceeded,
    RequestMalformed,
    TandemError,
    error_from_reason,
)
from tandem.v1 import error_reason_pb2

_PROBLEM_TYPE = "application/problem+json"

JSON_REMEDY = "send JSON as /openapi.json describes it"
FRAME_REMEDY = "send each message of tandem.v1 uncompressed, after its flags and its length"

# As Connect and gRPC's own mapping have it.
_STATUSES: Mapping[str, int] = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}

NOTHING_HERE = "nothing is served at this path; /openapi.json lists the paths"


class HttpRefusal(Exception):
    """A request that HTTP itself refuses: a path, a method or a type that does not exist."""

    def __init__(
        self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def malformed(why: str, remedy: str = JSON_REMEDY) -> RequestMalformed:
    """Returns the error of a request over HTTP; its remedy is for a caller that sends JSON."""
    return RequestMalformed(why=why, remedy=remedy)


def head_too_large(max_bytes: int) -> HttpRefusal:
    """Returns the refusal of a first line and headers that take more."""
    return HttpRefusal(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        f"the first line and headers take over {max_bytes:,} bytes; send fewer",
    )


def http_status(error: TandemError) -> int:
    """Returns the HTTP status of a named error."""
    if isinstance(error, MessageTooLarge):
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return _STATUSES.get(error.status, HTTPStatus.INTERNAL_SERVER_ERROR)


def error_headers(error: TandemError) -> dict[str, str]:
    """Returns the headers that HTTP has for an error: when to retry, or how to authenticate."""
    if isinstance(error, Overloaded | QuotaExceeded):
        # HTTP counts whole seconds.
        return {"retry-after": str(max(1, round(error.retry_delay_seconds)))}
    if error.status == "UNAUTHENTICATED":
        return {"www-authenticate": "Bearer"}
    return {}


def problem(error: TandemError | HttpRefusal) -> Response:
    """Returns the response for an error."""
    headers = error.headers if isinstance(error, HttpRefusal) else error_headers(error)
    members = problem_members(error)
    body = json.dumps(members, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, members["status"], headers, media_type=_PROBLEM_TYPE)


def problem_members(error: TandemError | HttpRefusal) -> dict[str, Any]:
    """Returns the JSON object for an error."""
    if isinstance(error, HttpRefusal):
        return _members(int(error.status), RequestMalformed.reason, error.detail)
    members = _members(http_status(error), error.reason, error.message)
    return members | {"metadata": error.metadata} if error.metadata else members


def item_error(message: error_reason_pb2.ItemError, where: str = "") -> TandemError:
    """Returns the error with its sender's message, after the place where it is."""
    shown = f"{where}: {message.message}" if where else message.message
    return error_from_reason(REASON_WIRE.from_proto(message.reason), shown, {})


def _members(status: int, reason: str, detail: str) -> dict[str, Any]:
    return {
        "type": f"urn:tandem:reason:{reason}",
        "title": _title(status),
        "status": status,
        # A lone surrogate, as of a file's name, is not text.
        "detail": detail.encode("utf-8", "replace").decode(),
        "reason": reason,
        "request_id": current_request_id(),
    }


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Client Closed Request"
