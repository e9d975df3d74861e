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
    headers = error.headers if isinstance(error, HttpRefusal) else error_headers(error)
    members = problem_members(error)
    body = json.dumps(members, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, members["status"], headers, media_type=PROBLEM_TYPE)


def problem_members(error: TandemError | HttpRefusal) -> dict[str, Any]:
    """Returns the JSON object for an error."""
    if isinstance(error, HttpRefusal):
        return _members(int(error.status), RequestMalformed.reason, error.detail)
    members = _members(http_status(error), error.reason, error.message)
    return members | {"metadata": error.metadata} if error.metadata else members


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
