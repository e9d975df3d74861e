"""Admits calls to an endpoint: who calls, how much is in flight, and only then the body."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gateway_svc.body import CallerGone, check_size, declared_byte_count, read_body
from gateway_svc.faults import HttpRefusal
from gateway_svc.http_call import HttpCall, HttpEndpoint, Outcome, deadline_of
from gateway_svc.observed import SERVICE, observed
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import CallContext
from tandem.chassis.admission import Pace, Room
from tandem.chassis.guard import Guard
from tandem.chassis.headers import AUTHORIZATION_KEY
from tandem.chassis.log import get_logger
from tandem.chassis.metrics import ADMISSION_LIMIT, ADMISSION_REFUSED, ANSWER_BYTES, INFLIGHT_BYTES
from tandem.errors import InternalFault, Overloaded, TandemError, Unauthenticated

log = get_logger()

# What gRPC carries in a header, of which all take 8 KiB at most.
_SENDABLE = re.compile(r"[ -~]*")
_MAX_AUTHORIZATION_CHARACTERS = 4_096 + len("Bearer ")


class EndpointAdmission:
    """Limits what all endpoints have in flight: requests, their bytes, and unread answers."""

    def __init__(self, guard: Guard, settings: GatewaySettings) -> None:
        """Needs a running event loop."""
        self.guard = guard
        self.settings = settings
        self._room = Room(settings.max_inflight_count, settings.max_inflight_bytes)
        self._answers = Room(settings.max_inflight_count, settings.max_answer_bytes)
        self._pace = Pace()
        for limit, value in (
            ("count", settings.max_inflight_count),
            ("bytes", settings.max_inflight_bytes),
            ("answers", settings.max_answer_bytes),
        ):
            ADMISSION_LIMIT.labels(SERVICE, limit).set(value)

    @contextmanager
    def place_for(self, byte_count: int) -> Iterator[None]:
        """Holds a place, and room for a body of that size; raises Overloaded."""
        if self._room.lacks_places():
            raise self._refused("count", "requests in flight")
        if self._room.lacks_bytes(byte_count):
            raise self._refused("bytes", "bytes of requests in flight")
        self._room.take(1, byte_count)
        INFLIGHT_BYTES.labels(SERVICE).inc(byte_count)
        try:
            yield
        finally:
            self._room.give_back(1, byte_count)
            INFLIGHT_BYTES.labels(SERVICE).dec(byte_count)
            self._pace.note_end()

    @contextmanager
    def room_for_answer(self, byte_count: int) -> Iterator[None]:
        """Holds room for an answer until its caller has read it; raises Overloaded."""
        if self._answers.lacks_bytes(byte_count):
            raise self._refused("answers", "bytes of unread answers")
        self._answers.take(1, byte_count)
        ANSWER_BYTES.labels(SERVICE).inc(byte_count)
        try:
            yield
        finally:
            self._answers.give_back(1, byte_count)
            ANSWER_BYTES.labels(SERVICE).dec(byte_count)

    def _refused(self, limit: str, what: str) -> Overloaded:
        ADMISSION_REFUSED.labels(SERVICE, limit).inc()
        return Overloaded(
            what=f"the gateway has as many {what} as it admits",
            retry_delay_seconds=self._pace.retry_delay_seconds(),
        )


class AdmittedEndpoint:
    """Serves one endpoint as an ASGI application, within the limits of all."""

    def __init__(self, endpoint: HttpEndpoint, admission: EndpointAdmission) -> None:
        self._endpoint = endpoint
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request, outcome = Request(scope, receive), Outcome()
        is_answered = False

        async def answer(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        with observed(self._endpoint.name, request, outcome):
            try:
                await self._admit(request, outcome, answer)
            except CallerGone:
                outcome.code = "CANCELLED"
            except Exception as error:
                refusal = _for_caller(error, self._endpoint.name)
                outcome.fail(refusal)
                if is_answered:
                    # Only a broken connection can still tell.
                    raise
                response = self._endpoint.refuse(refusal, request)
                await response(scope, receive, send)

    async def _admit(self, request: Request, outcome: Outcome, send: Send) -> None:
        guard, settings, headers = self._admission.guard, self._admission.settings, request.headers
        deadline = deadline_of(
            headers,
            default_seconds=settings.default_timeout_seconds,
            max_seconds=settings.max_timeout_seconds,
        )
        authorization = _authorization_of(headers)
        guard.let_in(guard.access_of(self._endpoint.method.path), authorization)
        max_bytes = self._endpoint.max_body_bytes(headers)
        declared = declared_byte_count(headers)
        check_size(declared or 0, max_bytes)
        # Without a declared size, it may become as large as is allowed.
        with self._admission.place_for(max_bytes if declared is None else declared):
            body = await read_body(request.receive, max_bytes, settings.body_seconds)
            context = CallContext(
                deadline, {AUTHORIZATION_KEY: authorization} if authorization else {}
            )
            call = HttpCall(request, body, context, outcome)
            response = await _unless_gone(self._endpoint, call)
            with self._admission.room_for_answer(len(getattr(response, "body", b""))):
                await response(request.scope, request.receive, send)


def _authorization_of(headers: Headers) -> str:
    """Returns the header for the orchestrator's call; raises Unauthenticated if gRPC refuses it."""
    authorization = headers.get(AUTHORIZATION_KEY, "")
    if _SENDABLE.fullmatch(authorization) is None:
        raise Unauthenticated(
            why="its authorization header has a character that is not printable ASCII"
        )
    if len(authorization) > _MAX_AUTHORIZATION_CHARACTERS:
        raise Unauthenticated(
            why=f"its authorization header has over {_MAX_AUTHORIZATION_CHARACTERS:,} characters"
        )
    return authorization


async def _unless_gone(endpoint: HttpEndpoint, call: HttpCall) -> Response:
    """Returns the response; cancels the work and raises CallerGone if the caller hangs up."""
    task = asyncio.current_task()
    assert task is not None
    is_gone = is_over = False

    def cancel(_: asyncio.Task[Message]) -> None:
        nonlocal is_gone
        if not is_over:
            is_gone = True
            task.cancel()

    leaving = asyncio.ensure_future(call.request.receive())
    leaving.add_done_callback(cancel)
    try:
        return await endpoint.serve(call)
    except asyncio.CancelledError:
        if not is_gone or task.cancelling() > 1:
            raise
        raise CallerGone from None
    finally:
        is_over = True
        leaving.cancel()
        if is_gone:
            task.uncancel()


def _for_caller(error: Exception, name: str) -> TandemError | HttpRefusal:
    """Returns the error for the caller, without its traceback, which would hold the request."""
    if isinstance(error, TandemError):
        return error.kept()
    if isinstance(error, HttpRefusal):
        return error
    # Strangers see the message, so it says nothing.
    log.error("internal fault", service=SERVICE, method=name, exc_info=error)
    traceback.clear_frames(error.__traceback__)
    return InternalFault(why=f"{name} failed")
