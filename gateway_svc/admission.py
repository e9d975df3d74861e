"""Admits calls of an operation: who calls, how much is in flight, and only then the body.

Every call is traced, logged, counted and timed, as the chassis does for gRPC.
"""

import asyncio
import re
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from gateway_svc.body import (
    CallerGone,
    check_size,
    deadline_of,
    declared_byte_count,
    read_body,
)
from gateway_svc.faults import HttpRefusal
from gateway_svc.http_call import HttpCall, Operation, Outcome
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import CallContext, Upstream
from tandem.chassis.access.call_log import CallLog
from tandem.chassis.access.callers import caller_of
from tandem.chassis.access.guard import Guard
from tandem.chassis.access.headers import AUTHORIZATION_KEY
from tandem.chassis.capacity.admission import Admission
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.telemetry.metrics import REFUSALS, RPC_DURATION, RPC_INFLIGHT
from tandem.chassis.telemetry.tracing import TRACEPARENT_KEY, TRACESTATE_KEY, exemplar, tracing
from tandem.errors import InternalFault, TandemError, Unauthenticated

log = get_logger()
call_log = CallLog()

SERVICE = "gateway"
"""The service's name in metrics."""

# What gRPC carries in a header, of which all take 8 KiB at most.
_SENDABLE = re.compile(r"[ -~]*")
_MAX_AUTHORIZATION_CHARACTERS = 4_096 + len("Bearer ")


class AdmittedOperation:
    """Serves one operation as an ASGI application, within the limits of all."""

    def __init__(
        self,
        operation: Operation,
        upstream: Upstream,
        guard: Guard,
        admission: Admission,
        settings: GatewaySettings,
    ) -> None:
        self._operation = operation
        self._upstream = upstream
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

        with _observed(self._operation.name, request, outcome):
            try:
                await self._admit(request, outcome, answer)
            except CallerGone:
                outcome.code = "CANCELLED"
            except Exception as error:
                refusal = _for_caller(error, self._operation.name)
                outcome.fail(refusal)
                if is_answered:
                    # Only a broken connection can still tell.
                    raise
                response = self._operation.refuse(refusal, request)
                await response(scope, receive, send)

    async def _admit(self, request: Request, outcome: Outcome, send: Send) -> None:
        settings, admission, headers = self._settings, self._admission, request.headers
        deadline = deadline_of(
            headers,
            default_seconds=settings.default_timeout_seconds,
            max_seconds=settings.max_timeout_seconds,
        )
        authorization = _authorization_of(headers)
        self._guard.let_in(self._guard.access_of(self._operation.method.path), authorization)
        caller = caller_of(request.client.host if request.client else "")
        max_bytes = self._operation.max_body_bytes(self._operation.method, headers)
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
                call = HttpCall(request, body, context, outcome, self._operation, self._upstream)
                response = await _unless_gone(call)
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


async def _unless_gone(call: HttpCall) -> Response:
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
        return await call.operation.serve(call)
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


@contextmanager
def _observed(name: str, request: Request, outcome: Outcome) -> Iterator[None]:
    """Observes one call of the operation `name`, which is not a text of the caller's."""
    headers = request.headers
    offered = {key: headers[key] for key in (TRACEPARENT_KEY, TRACESTATE_KEY) if key in headers}
    attributes = {"rpc.system": "http", "rpc.method": name}
    inflight = RPC_INFLIGHT.labels(SERVICE)
    start_time = time.perf_counter()
    inflight.inc()
    with tracing().serve(name, offered, attributes):
        try:
            yield
        except asyncio.CancelledError:
            outcome.code = "CANCELLED"
            raise
        except BaseException:
            outcome.code = "UNKNOWN"
            raise
        finally:
            inflight.dec()
            seconds = time.perf_counter() - start_time
            RPC_DURATION.labels(SERVICE, name, outcome.code).observe(seconds, exemplar())
            if outcome.reason:
                REFUSALS.labels(SERVICE, name, outcome.reason).inc()
            _log(name, request, outcome, seconds)


def _log(name: str, request: Request, outcome: Outcome, seconds: float) -> None:
    peer = request.client
    fields: dict[str, object] = {
        "service": SERVICE,
        "method": name,
        "duration_seconds": round(seconds, 6),
        "peer": f"{peer.host}:{peer.port}" if peer else "",
    }
    if outcome.reason:
        fields["reason"] = outcome.reason
    call_log.write(outcome.code, fields)
