"""What Prometheus scrapes from a service: base units, and labels that cannot explode."""

from __future__ import annotations

import functools

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
)
from prometheus_client.registry import Collector

from tandem import __version__


class _Registry(CollectorRegistry):
    """Remembers what was registered, in order, for the table of it."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Takes a metric in."""
        super().register(collector)
        self.collectors.append(collector)


REGISTRY = _Registry()
"""This process's metrics. Not the library's default one, which its imports may add to."""

# From a flat search over a small shard to the longest deadline that anyone sets.
LATENCY_BUCKETS_SECONDS = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip

RPC_DURATION = Histogram(
    "tandem_rpc_duration_seconds",
    "Wall time of a call as its server saw it.",
    ["service", "method", "code"],
    buckets=LATENCY_BUCKETS_SECONDS,
    registry=REGISTRY,
)
RPC_INFLIGHT = Gauge(
    "tandem_rpc_inflight_count",
    "Calls being served now.",
    ["service"],
    registry=REGISTRY,
)
REFUSALS = Counter(
    "tandem_rpc_refusals_total",
    "Calls that ended with a named error, by its reason.",
    ["service", "method", "reason"],
    registry=REGISTRY,
)
INFLIGHT_BYTES = Gauge(
    "tandem_rpc_inflight_bytes",
    "Bytes of the requests being served now, as they arrived.",
    ["service"],
    registry=REGISTRY,
)
ANSWER_BYTES = Gauge(
    "tandem_rpc_answer_bytes",
    "Bytes of answers that their callers have not taken yet.",
    ["service"],
    registry=REGISTRY,
)
ADMISSION_REFUSED = Counter(
    "tandem_admission_refused_total",
    "Calls refused for lack of room, by the limit that they met: count, bytes, streams or answers.",
    ["service", "limit"],
    registry=REGISTRY,
)
ADMISSION_LIMIT = Gauge(
    "tandem_admission_limit",
    "Most that is admitted at once: calls, their bytes, streams, and bytes of answers not taken.",
    ["service", "limit"],
    registry=REGISTRY,
)
SERVING = Gauge(
    "tandem_serving",
    "1 while the service's health says SERVING, else 0.",
    ["service"],
    registry=REGISTRY,
)
_BUILD = Info(
    "tandem_build",
    "Which Tandem this process runs.",
    ["service"],
    registry=REGISTRY,
)
ProcessCollector(registry=REGISTRY)


@functools.cache
def stage_histogram(service: str) -> Histogram:
    """Returns `tandem_<service>_stage_duration_seconds{stage}`; the same one on every call."""
    return Histogram(
        f"tandem_{service}_stage_duration_seconds",
        f"Wall time of a stage inside the {service} service.",
        ["stage"],
        buckets=LATENCY_BUCKETS_SECONDS,
        registry=REGISTRY,
    )


def table() -> str:
    """Returns what is registered as a Markdown table: metric, type, labels, meaning."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for collector in REGISTRY.collectors:
        # Of what samples itself when asked, such as the process's own memory, there are no labels.
        labels = ", ".join(f"`{name}`" for name in getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            name = f"{name}_info" if family.type == "info" else name
            rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(rows)


def note_build(service: str) -> None:
    """Tells in `tandem_build_info` which Tandem this is."""
    _BUILD.labels(service).info({"version": __version__})
