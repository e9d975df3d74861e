"""Declares a service's metrics: in base units, with labels of bounded cardinality."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, ProcessCollector, values
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from tandem.installation import __version__


class _Registry(CollectorRegistry):
    """A registry that keeps the order of registration, for the table of metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Registers a metric."""
        super().register(collector)
        self.collectors.append(collector)


REGISTRY = _Registry()
"""This process's metrics. Not the library's default registry, to which imports may add."""


class _InMemory(MetricWrapperBase):
    """Registers a metric with REGISTRY, and keeps its values in this process, as that serves them.

    With PROMETHEUS_MULTIPROC_DIR, which another program sets for its own metrics, the library would
    keep them in files of that folder, and fail without it.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        **options: Any,  # noqa: ANN401 (the library's own)
    ) -> None:
        super().__init__(name, documentation, labelnames, **{"registry": REGISTRY} | options)

    def _metric_init(self) -> None:
        chosen, values.ValueClass = values.ValueClass, values.MutexValue
        try:
            super()._metric_init()  # type: ignore[no-untyped-call]
        finally:
            values.ValueClass = chosen


class Counter(_InMemory, prometheus_client.Counter):
    """A counter in memory."""


class Gauge(_InMemory, prometheus_client.Gauge):
    """A gauge in memory."""


class Histogram(_InMemory, prometheus_client.Histogram):
    """A histogram in memory."""


class Info(_InMemory, prometheus_client.Info):
    """An info in memory."""


Series = TypeVar("Series", Counter, Gauge, Histogram)

# More than any metric has.
_KEPT_SERIES_COUNT = 1024

# From a flat search over a small shard to the longest deadlines.
LATENCY_BUCKETS_SECONDS = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip

RPC_DURATION = Histogram(
    "tandem_rpc_duration_seconds",
    "Wall time of a call, measured by the server.",
    ["service", "method", "code"],
    buckets=LATENCY_BUCKETS_SECONDS,
)
RPC_INFLIGHT = Gauge(
    "tandem_rpc_inflight_count",
    "Calls in flight.",
    ["service"],
)
REFUSALS = Counter(
    "tandem_rpc_refusals_total",
    "Calls that ended with a named error, by reason.",
    ["service", "method", "reason"],
)
INFLIGHT_BYTES = Gauge(
    "tandem_rpc_inflight_bytes",
    "Bytes of requests in flight, as received.",
    ["service"],
)
ANSWER_BYTES = Gauge(
    "tandem_rpc_answer_bytes",
    "Bytes of answers that callers have not read yet.",
    ["service"],
)
ADMISSION_REFUSED = Counter(
    "tandem_admission_refused_total",
    "Calls refused at capacity, by the limit reached: count, bytes, streams or answers.",
    ["service", "limit"],
)
ADMISSION_LIMIT = Gauge(
    "tandem_admission_limit",
    "Admission limits: calls, their bytes, streams, and bytes of unread answers.",
    ["service", "limit"],
)
SERVING = Gauge(
    "tandem_serving",
    "1 while health is SERVING, otherwise 0.",
    ["service"],
)
_BUILD = Info(
    "tandem_build",
    "The version of Tandem that this process runs.",
    ["service"],
)
ProcessCollector(registry=REGISTRY)


@functools.cache
def stage_histogram(service: str) -> Histogram:
    """Returns `tandem_<service>_stage_duration_seconds{stage}`; the same object on every call."""
    return Histogram(
        f"tandem_{service}_stage_duration_seconds",
        f"Wall time of a stage in the {service} service.",
        ["stage"],
        buckets=LATENCY_BUCKETS_SECONDS,
    )


def kept_series(metric: Series) -> Callable[..., Series]:
    """Returns `metric.labels` that keeps the series it has found.

    Finding one takes longer than observing it, and a search observes some thirty.
    """
    return functools.lru_cache(_KEPT_SERIES_COUNT)(metric.labels)


def table() -> str:
    """Returns the registered metrics as a Markdown table: metric, type, labels, meaning."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for collector in REGISTRY.collectors:
        # Collectors that sample on demand name their labels if they have any, unlike the library's.
        names = getattr(collector, "label_names", getattr(collector, "_labelnames", ()))
        labels = ", ".join(f"`{name}`" for name in names)
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            name = f"{name}_info" if family.type == "info" else name
            rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(rows)


def note_build(service: str) -> None:
    """Sets the version in `tandem_build_info`."""
    _BUILD.labels(service).info({"version": __version__})
