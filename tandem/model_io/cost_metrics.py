"""What a service's models did, as Prometheus counters: the sum of what its answers say."""

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
    "Those, and the padding that was computed with them.",
    ["service"],
    registry=REGISTRY,
)
_QUEUE = Counter(
    "tandem_inference_triton_queue_seconds_total",
    "Waiting in Triton, summed over its requests.",
    ["service"],
    registry=REGISTRY,
)
_COMPUTE = Counter(
    "tandem_inference_triton_compute_seconds_total",
    "Computing in Triton, summed over its requests.",
    ["service"],
    registry=REGISTRY,
)


def count_inference(service: str, cost: InferenceCost) -> None:
    """Adds what one call of a model took; hits, misses and pairs are counted elsewhere."""
    _TOKENS.labels(service).inc(cost.token_count)
    _PADDED_TOKENS.labels(service).inc(cost.padded_token_count)
    _QUEUE.labels(service).inc(cost.triton_queue_seconds or 0.0)
    _COMPUTE.labels(service).inc(cost.triton_compute_seconds or 0.0)
