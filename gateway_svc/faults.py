"""Defines refusals that only HTTP has, and the HTTP status of each named error."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from tandem.errors import (
    MessageTooLarge,
    Overloaded,
    QuotaExceeded,
    TandemError,
)

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
