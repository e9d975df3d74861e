"""What requests to Triton took, as histograms: over processes and replicas their buckets add up.

Triton's own are sums and counts, of which no quantile can be had.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from tandem.chassis.metrics import LATENCY_BUCKETS_SECONDS, REGISTRY
from tandem.chassis.tracing import exemplar
from tandem.errors import TandemError
from tandem.model_io.priority import Priority

_LABELS = ("model", "version", "purpose")

_REQUEST_DURATION = Histogram(
    "tandem_triton_request_duration_seconds",
    "From sending an inference to its answer, by what it was for.",
    _LABELS,
    buckets=LATENCY_BUCKETS_SECONDS,
    registry=REGISTRY,
)
_QUEUE_DURATION = Histogram(
    "tandem_triton_queue_duration_seconds",
    "What of that was not computing: on the way, and waiting in Triton.",
    _LABELS,
    buckets=LATENCY_BUCKETS_SECONDS,
    registry=REGISTRY,
)
_COMPUTE_DURATION = Histogram(
    "tandem_triton_compute_duration_seconds",
    "What of that was computing, for the whole batch that it went with.",
    _LABELS,
    buckets=LATENCY_BUCKETS_SECONDS,
    registry=REGISTRY,
)
_REQUEST_ROWS = Histogram(
    "tandem_triton_request_rows",
    "Rows of an inference as it was sent: texts, images or pairs.",
    _LABELS,
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
    registry=REGISTRY,
)
_FAILURES = Counter(
    "tandem_triton_failures_total",
    "Inferences that failed, canaries too, by the error's name.",
    ["model", "reason"],
    registry=REGISTRY,
)


def note_inference(
    model: str,
    version: str,
    priority: Priority,
    row_count: int,
    seconds: float,
    compute_seconds: float | None,
) -> None:
    """Counts one that was answered; `compute_seconds` is None where Triton does not tell."""
    # A number in Triton. What else a server may say is not for a label.
    known = version if version.isdecimal() and len(version) < 6 else "other"
    labels = (model, known, priority.value)
    _REQUEST_DURATION.labels(*labels).observe(seconds, exemplar())
    _REQUEST_ROWS.labels(*labels).observe(row_count)
    if compute_seconds is not None:
        _COMPUTE_DURATION.labels(*labels).observe(compute_seconds, exemplar())
        _QUEUE_DURATION.labels(*labels).observe(max(0.0, seconds - compute_seconds), exemplar())


def note_failure(model: str, error: TandemError) -> None:
    """Counts one that was not."""
    _FAILURES.labels(model, error.reason).inc()
