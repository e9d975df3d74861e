"""Measures the calls of index_svc and rerank_svc to an outside engine."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tandem.chassis.telemetry.metrics import LATENCY_BUCKETS_SECONDS, Gauge, Histogram
from tandem.chassis.telemetry.tracing import exemplar
from tandem.errors import TandemError

_CALL_DURATION = Histogram(
    "tandem_engine_call_duration_seconds",
    "Wall time of a call to the outside engine; outcome is OK or the error's name. The operation "
    "connection is the wait for one of Postgres' connections, and a part of the others.",
    ["operation", "outcome"],
    buckets=LATENCY_BUCKETS_SECONDS,
)
_CALLS_INFLIGHT = Gauge(
    "tandem_engine_calls_inflight_count",
    "Calls to the outside engine in flight; those of the operation connection wait for one.",
    ["operation"],
)
STANDBY_LAG_BYTES = Gauge(
    "tandem_engine_standby_lag_bytes",
    "Bytes of Postgres' log that a connected standby has not replayed.",
    ["standby"],
)


@asynccontextmanager
async def engine_call(operation: str) -> AsyncIterator[None]:
    """Measures the body as one call, whatever its outcome."""
    start_time = time.perf_counter()
    outcome = "OK"
    try:
        with _CALLS_INFLIGHT.labels(operation).track_inprogress():
            yield
    except BaseException as error:
        outcome = error.reason if isinstance(error, TandemError) else type(error).__name__
        raise
    finally:
        seconds = time.perf_counter() - start_time
        _CALL_DURATION.labels(operation, outcome).observe(seconds, exemplar())
