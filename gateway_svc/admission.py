"""Admits calls to an endpoint: who calls, how much is in flight, and only then the body."""

from __future__ import annotations

import asyncio
import re
import traceback

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from gateway_svc.body import CallerGone, check_size, declared_byte_count, read_body
from gateway_svc.faults import HttpRefusal
from gateway_svc.http_call import HttpCall, HttpEndpoint, Outcome, deadline_of
from gateway_svc.observed import SERVICE, observed
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import CallContext
from tandem.chassis.admission import Admission
from tandem.chassis.guard import Guard
from tandem.chassis.headers import AUTHORIZATION_KEY
from tandem.chassis.log import get_logger
from tandem.chassis.places import caller_of
from tandem.errors import InternalFault, TandemError, Unauthenticated

log = get_logger()

# What gRPC carries in a header, of which all take 8 KiB at most.
_SENDABLE = re.compile(r"[ -~]*")
_MAX_AUTHORIZATION_CHARACTERS = 4_096 + len("Bearer ")


class AdmittedEndpoint:
    """Serves one endpoint as an ASGI application, within the limits of all."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        guard: Guard,
        admission: Admission,
        settings: GatewaySettings,
    ) -> None:
        self._endpoint = endpoint
        self._guard = guard
        self._admission = admission
        self._settings = settings

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
        settings, admission, headers = self._settings, self._admission, request.headers
        deadline = deadline_of(
            headers,
            default_seconds=settings.default_timeout_seconds,
            max_seconds=settings.max_timeout_seconds,
        )
        authorization = _authorization_of(headers)
        self._guard.let_in(self._guard.access_of(self._endpoint.method.path), authorization)
        caller = caller_of(request.client.host if request.client else "")
        max_bytes = self._endpoint.max_body_bytes(headers)
        check_size(declared_byte_count(headers), max_bytes)
        await admission.begin_call(caller)
        with admission.body(caller) as grow:
            body = await read_body(
                request.receive, max_bytes, settings.body_seconds, deadline, grow
            )
            context = CallContext(
                deadline, {AUTHORIZATION_KEY: authorization} if authorization else {}
            )
            with admission.call(caller):
                call = HttpCall(request, body, context, outcome)
                response = await _unless_gone(self._endpoint, call)
            await self._send(response, request, caller, send)

    async def _send(self, response: Response, request: Request, caller: str, send: Send) -> None:
        """Sends the response, all of it or each part of a stream being counted until it is read."""

        async def counted(message: Message) -> None:
            with self._admission.answer(caller, len(message.get("body", b""))):
                await send(message)

        if isinstance(response, StreamingResponse):
            await response(request.scope, request.receive, counted)
            return
        with self._admission.answer(caller, len(response.body)):
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
