"""Defines one HTTP call of a method, and what endpoints make of it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from gateway_svc.faults import HttpRefusal
from gateway_svc.malformed import malformed
from gateway_svc.methods import Method
from gateway_svc.openapi.schemas import Schemas
from gateway_svc.problem import problem
from gateway_svc.upstream import CallContext
from tandem.chassis.deadline import Deadline
from tandem.errors import TandemError

# gRPC's units of grpc-timeout.
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_GRPC_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_MILLISECONDS = re.compile(rb"\d{1,10}")

# base64 makes four bytes of three, and JSON has names and signs around them.
_JSON_GROWTH = 4 / 3
_JSON_ROOM_BYTES = 64 * 1024


# nginx, for one, would hold the first of two answers back until the second is there.
_UNBUFFERED = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}


@dataclass(slots=True)
class Outcome:
    """How a call ended, for the log and the metrics."""

    code: str = "OK"
    reason: str = ""

    def fail(self, error: TandemError | HttpRefusal) -> None:
        """Notes an error."""
        if isinstance(error, TandemError):
            self.code, self.reason = error.status, error.reason
        else:
            self.code = "INVALID_ARGUMENT"


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One admitted call, with its whole body."""

    request: Request
    body: bytes
    context: CallContext
    outcome: Outcome


class HttpEndpoint(ABC):
    """Answers calls of one method."""

    def __init__(self, method: Method, name: str | None = None) -> None:
        """`name` labels its metrics; by default the method's."""
        self.method = method
        self.name = name or method.name

    def max_body_bytes(self, headers: Headers) -> int:
        """Returns the limit of a body: a request's, and what JSON makes of it."""
        return int(self.method.limit.max_bytes * _JSON_GROWTH) + _JSON_ROOM_BYTES

    @abstractmethod
    async def serve(self, call: HttpCall) -> Response:
        """Returns the response; raises TandemError or HttpRefusal."""

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Returns what OpenAPI says of it: parameters, request body and responses."""
        return {"responses": {}}

    def refuse(self, error: TandemError | HttpRefusal, request: Request) -> Response:
        """Returns the response for an error."""
        return problem(error)


def query_parameters(call: HttpCall, *names: str) -> dict[str, str]:
    """Returns the parameters of the URL's query.

    Raises RequestMalformed for one that is unknown, which may be a misspelt one, or given twice.
    """
    given = call.request.query_params.multi_items()
    for name, _ in given:
        if name not in names:
            raise malformed(
                f"the URL has no parameter {name[:64]!a}",
                f"send {' or '.join(names)} there" if names else "send none",
            )
    if len({name for name, _ in given}) < len(given):
        raise malformed("the URL has a parameter twice", "send each once")
    return dict(given)


def deadline_of(headers: Headers, *, default_seconds: float, max_seconds: float) -> Deadline:
    """Returns the caller's deadline by gRPC's, Connect's or our own header, or the default.

    Raises RequestMalformed for a header that is not a timeout.
    """
    seconds = _asked_seconds(dict(headers.raw))
    return Deadline.after(min(default_seconds if seconds is None else seconds, max_seconds))


def _asked_seconds(headers: dict[bytes, bytes]) -> float | None:
    if (text := headers.get(b"grpc-timeout")) is not None:
        if found := _GRPC_TIMEOUT.fullmatch(text):
            return int(found[1]) * _UNITS[found[2]]
        raise malformed("grpc-timeout is not a timeout", "send up to 8 digits and a unit: 500m")
    for name in (b"connect-timeout-ms", b"x-request-timeout-ms"):
        if (text := headers.get(name)) is not None:
            if _MILLISECONDS.fullmatch(text):
                return int(text) / 1000
            raise malformed(f"{name.decode()} is not a timeout", "send 1 to 10 digits")
    return None


def streamed(pieces: AsyncIterator[bytes], kind: str) -> Response:
    """Returns the response of several answers, which no proxy is to keep, cache or compress."""
    return StreamingResponse(pieces, headers=_UNBUFFERED, media_type=kind)
