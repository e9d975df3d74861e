"""Measures requests to Triton in histograms, which can be added over processes and replicas.

Triton's own metrics are sums and counts, which give no quantiles.
"""

from tandem.chassis.telemetry.metrics import (
    LATENCY_BUCKETS_SECONDS,
    Counter,
    Histogram,
    kept_series,
)
from tandem.chassis.telemetry.tracing import exemplar
from tandem.errors import TandemError
from tandem.model_io.repository.priority import Priority

_LABELS = ("model", "version", "purpose")

_REQUEST_DURATION = Histogram(
    "tandem_triton_request_duration_seconds",
    "Time from sending an inference to its response, by purpose.",
    _LABELS,
    buckets=LATENCY_BUCKETS_SECONDS,
)
_QUEUE_DURATION = Histogram(
    "tandem_triton_queue_duration_seconds",
    "The part of the request time that is not computing: transport, and waiting in Triton.",
    _LABELS,
    buckets=LATENCY_BUCKETS_SECONDS,
)
_COMPUTE_DURATION = Histogram(
    "tandem_triton_compute_duration_seconds",
    "The part of the request time that is computing, for its whole batch.",
    _LABELS,
    buckets=LATENCY_BUCKETS_SECONDS,
)
_REQUEST_ROWS = Histogram(
    "tandem_triton_request_rows",
    "Rows of an inference as sent: texts, images or pairs.",
    _LABELS,
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
)
_FAILURES = Counter(
    "tandem_triton_failures_total",
    "Failed inferences, including canaries, by the error's name.",
    ["model", "reason"],
)
_REQUEST_DURATION_OF = kept_series(_REQUEST_DURATION)
_QUEUE_DURATION_OF = kept_series(_QUEUE_DURATION)
_COMPUTE_DURATION_OF = kept_series(_COMPUTE_DURATION)
_REQUEST_ROWS_OF = kept_series(_REQUEST_ROWS)


def note_inference(
    model: str,
    version: str,
    priority: Priority,
    row_count: int,
    seconds: float,
    compute_seconds: float | None,
) -> None:
    """Counts a successful inference; `compute_seconds` is None if Triton does not report it."""
    # A number in Triton. No label takes other values from a server.
    known = version if version.isdecimal() and len(version) < 6 else "other"
    labels = (model, known, priority.value)
    _REQUEST_DURATION_OF(*labels).observe(seconds, exemplar())
    _REQUEST_ROWS_OF(*labels).observe(row_count)
    if compute_seconds is not None:
        _COMPUTE_DURATION_OF(*labels).observe(compute_seconds, exemplar())
        _QUEUE_DURATION_OF(*labels).observe(max(0.0, seconds - compute_seconds), exemplar())


def note_failure(model: str, error: TandemError) -> None:
    """Counts a failed inference."""
    _FAILURES.labels(model, error.reason).inc()
