"""Exports which model and shard a process serves, and what its models computed."""

from typing import TYPE_CHECKING

from tandem.chassis.telemetry.metrics import Counter, Info, kept_series

if TYPE_CHECKING:
    from tandem.contract.inference_cost import InferenceCost
    from tandem.contract.model_description import ModelDescription

_MODEL = Info(
    "tandem_model",
    "Which model this process serves.",
    ["service"],
)
_SHARD = Info(
    "tandem_shard",
    "Which shards this process serves, of how many.",
    ["service", "shard"],
)
_TOKENS = Counter(
    "tandem_inference_tokens_total",
    "Tokens that models read, of texts and images.",
    ["service"],
)
_PADDED_TOKENS = Counter(
    "tandem_inference_padded_tokens_total",
    "Tokens that models read, and the padding computed with them.",
    ["service"],
)
_QUEUE = Counter(
    "tandem_inference_triton_queue_seconds_total",
    "Time waiting in Triton, summed over its requests.",
    ["service"],
)
_COMPUTE = Counter(
    "tandem_inference_triton_compute_seconds_total",
    "Compute time in Triton, summed over its requests.",
    ["service"],
)
_TOKENS_OF, _PADDED_TOKENS_OF = kept_series(_TOKENS), kept_series(_PADDED_TOKENS)
_QUEUE_OF, _COMPUTE_OF = kept_series(_QUEUE), kept_series(_COMPUTE)
# As in tables and logs; the rest adds nothing.
_FINGERPRINT_LENGTH = 12


def note_model(service: str, model: "ModelDescription") -> None:
    """Sets `tandem_model_info` to the model that the service uses."""
    _MODEL.labels(service).info(
        {"fingerprint": model.fingerprint[:_FINGERPRINT_LENGTH], "precision": model.precision}
    )


def note_shard(service: str, number: int, count: int) -> None:
    """Adds this shard to `tandem_shard_info`."""
    _SHARD.labels(service, str(number)).info({"shard_count": str(count)})


def count_inference(service: str, cost: "InferenceCost") -> None:
    """Adds the cost of one model call; hits, misses and pairs are counted elsewhere."""
    _TOKENS_OF(service).inc(cost.token_count)
    _PADDED_TOKENS_OF(service).inc(cost.padded_token_count)
    _QUEUE_OF(service).inc(cost.triton_queue_seconds or 0.0)
    _COMPUTE_OF(service).inc(cost.triton_compute_seconds or 0.0)
