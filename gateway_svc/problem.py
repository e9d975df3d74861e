"""Answers errors as problem details (RFC 9457), with the reasons that gRPC has."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from gateway_svc.faults import HttpRefusal, error_headers, http_status
from tandem.chassis.request_id import current_request_id
from tandem.errors import RequestMalformed, TandemError

PROBLEM_TYPE = "application/problem+json"


def problem(error: TandemError | HttpRefusal) -> Response:
    """Returns the response for an error."""
    if isinstance(error, HttpRefusal):
        members = _members(int(error.status), RequestMalformed.reason, error.detail)
        return _response(members, error.headers)
    members = _members(http_status(error), error.reason, error.message)
    if error.metadata:
        members["metadata"] = error.metadata
    return _response(members, error_headers(error))


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


def _response(members: dict[str, Any], headers: dict[str, str]) -> Response:
    body = json.dumps(members, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, members["status"], headers, media_type=PROBLEM_TYPE)
