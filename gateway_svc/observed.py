"""Traces, logs, counts and times calls, as the chassis does for gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from gateway_svc.http_call import Outcome
from tandem.chassis.call_log import CallLog
from tandem.chassis.metrics import REFUSALS, RPC_DURATION, RPC_INFLIGHT
from tandem.chassis.tracing import TRACEPARENT_KEY, TRACESTATE_KEY, exemplar, tracing

log = CallLog()

SERVICE = "gateway"
"""The service's name in metrics."""


@contextmanager
def observed(name: str, request: Request, outcome: Outcome) -> Iterator[None]:
    """Observes one call of the endpoint `name`, which is not a text of the caller's."""
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
    log.write(outcome.code, fields)
