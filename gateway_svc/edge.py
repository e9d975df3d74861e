"""Wraps the whole application: what holds for every request, whatever its path.

Request ids, headers that protect browsers, hosts and origins, framing that proxies could read in
two ways, and callers that read slowly.
"""

import asyncio
import ipaddress
import re
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway_svc.body import CallerGone
from gateway_svc.connection import LimitedConnection
from gateway_svc.faults import HttpRefusal, head_too_large, problem
from gateway_svc.settings import GatewaySettings
from tandem.chassis.access.exposure import is_loopback
from tandem.chassis.capacity.admission import LEAST_BYTES_A_SECOND
from tandem.chassis.telemetry.request_id import REQUEST_ID_KEY, bind_request_id
from tandem.errors import Unauthenticated

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ABSOLUTE = re.compile(rb"https?://(?P<host>[^/]*)", re.IGNORECASE)
_PIECE_BYTES = 64 * 1024
_PREFLIGHT_SECONDS = 600

# Our pages load only from this server, run no inline scripts, and cannot be framed.
_CONTENT_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_PROTECTION: Mapping[str, str] = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_EXPOSED = (
    "x-request-id, retry-after, grpc-status, grpc-message, grpc-status-details-bin, tandem-reason, "
    "grpc-retry-pushback-ms"
)
# A proxy could read the first of two, and this gateway the last.
_SINGLE_HEADERS = (
    "authorization",
    "content-type",
    "origin",
    "grpc-timeout",
    "connect-timeout-ms",
    "x-request-timeout-ms",
)


class Edge:
    """An ASGI application around another."""

    def __init__(
        self, app: ASGIApp, settings: GatewaySettings, peer_names: frozenset[str] = frozenset()
    ) -> None:
        """With `peer_names`, only callers whose certificate has one of them are answered."""
        self._app = app
        self._peer_names = peer_names
        self._origins = frozenset(settings.origins)
        self._send_seconds = settings.send_seconds
        self._max_head_bytes = settings.max_head_bytes
        self._hosts = frozenset(settings.hosts)
        if not self._hosts and is_loopback(settings.address):
            # Otherwise a page that resolves its own name to this machine could call it.
            self._hosts = _LOCAL_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        headers = Headers(scope=scope)
        request_id = bind_request_id(headers.get(REQUEST_ID_KEY))
        origin = headers.get("origin", "")
        answers = _Answers(scope, send, self._send_seconds)
        answers.headers = {REQUEST_ID_KEY: request_id, **_PROTECTION}
        if origin in self._origins:
            answers.headers |= _cross_origin(origin)
        connection = _connection(scope)
        if connection is not None and connection.must_shake_hands_again:
            answers.headers["connection"] = "close"
        try:
            self._check_name(connection)
            self._check_size(scope)
            scope = _origin_form(scope, headers)
            self._check(headers, origin)
        except (HttpRefusal, Unauthenticated) as refusal:
            # What follows on this connection may be a body that was not read.
            answers.headers["connection"] = "close"
            await problem(refusal)(scope, receive, answers.send)
            return
        try:
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await _preflight(headers)(scope, receive, answers.send)
            else:
                await self._app(scope, receive, answers.send)
        except CallerGone:
            pass

    def _check_name(self, connection: LimitedConnection | None) -> None:
        if not self._peer_names:
            return
        if connection is None or self._peer_names.isdisjoint(connection.certificate_names()):
            raise Unauthenticated(why="the name in its certificate is not accepted")

    def _check_size(self, scope: Scope) -> None:
        """Raises for a head over the limit, which h11 keeps only while a head is incomplete."""
        target = len(scope["raw_path"]) + len(scope["query_string"])
        if target + sum(len(name) + len(value) for name, value in scope["headers"]) > (
            self._max_head_bytes
        ):
            raise head_too_large(self._max_head_bytes)

    def _check(self, headers: Headers, origin: str) -> None:
        _check_framing(headers)
        host = headers.get("host", "")
        if self._hosts and _name_of(host) not in self._hosts:
            raise HttpRefusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this host is not served here; the operator names more in GATEWAY_HOSTS",
            )
        # By the host alone: a proxy may have ended TLS.
        is_own = origin.partition("://")[2] == host
        if origin and not is_own and origin not in self._origins:
            raise HttpRefusal(
                HTTPStatus.FORBIDDEN,
                "pages of other origins may not call; the operator allows them in GATEWAY_ORIGINS",
            )


class _Answers:
    """Sends a response in small pieces, and gives up on a caller that does not read them."""

    def __init__(self, scope: Scope, send: Send, seconds: float) -> None:
        self._connection = _connection(scope)
        self._send = send
        self._seconds = seconds
        self.headers: dict[str, str] = {}

    async def send(self, message: Message) -> None:
        """Sends one message; aborts the connection and raises CallerGone if it takes too long."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in self.headers.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        body = message.get("body", b"")
        if len(body) <= _PIECE_BYTES and self._connection and not self._connection.waits_for_caller:
            # uvicorn only writes; a timer would take longer.
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._seconds + len(body) / LEAST_BYTES_A_SECOND):
                sent = 0
                # uvicorn writes a message whole, however little of the last one was read.
                for start in range(0, len(body) - _PIECE_BYTES, _PIECE_BYTES):
                    piece = body[start : start + _PIECE_BYTES]
                    await self._send({**message, "body": piece, "more_body": True})
                    sent = start + _PIECE_BYTES
                await self._send({**message, "body": body[sent:]} if sent else message)
        except TimeoutError:
            if self._connection is not None:
                self._connection.abort()
            raise CallerGone from None


def _connection(scope: Scope) -> LimitedConnection | None:
    found: LimitedConnection | None = scope.get("state", {}).get("connection")
    return found


def _check_framing(headers: Headers) -> None:
    """Raises if another server could see another end of this request."""
    lengths, codings = headers.getlist("content-length"), headers.getlist("transfer-encoding")
    if lengths and codings:
        raise HttpRefusal(
            HTTPStatus.BAD_REQUEST, "send content-length or transfer-encoding, not both"
        )
    if len(headers.getlist("host")) != 1:
        raise HttpRefusal(HTTPStatus.BAD_REQUEST, "send one host header")
    if len(set(headers.keys())) < len(headers.raw):
        for name in _SINGLE_HEADERS:
            if len(headers.getlist(name)) > 1:
                raise HttpRefusal(HTTPStatus.BAD_REQUEST, f"send one {name} header")
    encodings = headers.get("content-encoding", "").lower().split(",")
    if {each.strip() for each in encodings} - {"identity", ""}:
        raise HttpRefusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "compressed bodies are not read; send it as it is",
            {"accept-encoding": "identity"},
        )


def _origin_form(scope: Scope, headers: Headers) -> Scope:
    """Returns the scope of a request without the host in its target.

    Raises HttpRefusal for a target that names another host, or whose path or query is not UTF-8:
    two targets would be one, with the same mark in place of their bytes.
    """
    found = _ABSOLUTE.match(raw := scope["raw_path"])
    if found:
        if found["host"].decode().lower() != headers.get("host", "").lower():
            raise HttpRefusal(
                HTTPStatus.BAD_REQUEST, "the target and the host header differ; send one host"
            )
        raw = raw[found.end() :] or b"/"
    path = _unquoted(raw, "path")
    _unquoted(scope["query_string"], "query")
    return {**scope, "raw_path": raw, "path": path} if found else scope


def _unquoted(raw: bytes, part: str) -> str:
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise HttpRefusal(
            HTTPStatus.BAD_REQUEST, f"the {part} is not UTF-8; percent-encode it as UTF-8"
        ) from None


def _name_of(host: str) -> str:
    """Returns a host header's name, without its port and an IPv6 address's brackets."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    name = name.strip("[]").lower()
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _cross_origin(origin: str) -> dict[str, str]:
    return {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": _EXPOSED,
        "cross-origin-resource-policy": "cross-origin",
        "vary": "Origin",
    }


def _preflight(asked: Headers) -> Response:
    """Returns the answer that allows every header: the origin decides who may call."""
    headers = {
        "access-control-allow-methods": "GET, POST, PUT, DELETE",
        "access-control-allow-headers": asked.get("access-control-request-headers", ""),
        "access-control-max-age": str(_PREFLIGHT_SECONDS),
        "vary": "Origin, Access-Control-Request-Headers",
    }
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
