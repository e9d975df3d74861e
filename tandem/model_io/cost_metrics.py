"""Counts what a service's models computed: the sum of the costs in its responses."""

from __future__ import annotations

from prometheus_client import Counter

from tandem.chassis.metrics import REGISTRY
from tandem.contract.inference_cost import InferenceCost

_TOKENS = Counter(
    "tandem_inference_tokens_total",
    "Tokens that models read, of texts and images.",
    ["service"],
    registry=REGISTRY,
)
_PADDED_TOKENS = Counter(
    "tandem_inference_padded_tokens_total",
    "Tokens that models read, and the padding computed with them.",
    ["service"],
    registry=REGISTRY,
)
_QUEUE = Counter(
    "tandem_inference_triton_queue_seconds_total",
    "Time waiting in Triton, summed over its requests.",
    ["service"],
    registry=REGISTRY,
)
_COMPUTE = Counter(
    "tandem_inference_triton_compute_seconds_total",
    "Compute time in Triton, summed over its requests.",
    ["service"],
    registry=REGISTRY,
)


def count_inference(service: str, cost: InferenceCost) -> None:
    """Adds the cost of one model call; hits, misses and pairs are counted elsewhere."""
    _TOKENS.labels(service).inc(cost.token_count)
    _PADDED_TOKENS.labels(service).inc(cost.padded_token_count)
    _QUEUE.labels(service).inc(cost.triton_queue_seconds or 0.0)
    _COMPUTE.labels(service).inc(cost.triton_compute_seconds or 0.0)
