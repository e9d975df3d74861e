"""Exports which model and shard a process serves, to compare processes in Prometheus."""

from __future__ import annotations

from prometheus_client import Info

from tandem.chassis.metrics import REGISTRY
from tandem.contract.model_description import ModelDescription

_MODEL = Info(
    "tandem_model",
    "Which model this process serves.",
    ["service"],
    registry=REGISTRY,
)
_SHARD = Info(
    "tandem_shard",
    "Which shards this process serves, of how many.",
    ["service", "shard"],
    registry=REGISTRY,
)
# As in tables and logs; the rest adds nothing.
_FINGERPRINT_LENGTH = 12


def note_model(service: str, model: ModelDescription) -> None:
    """Sets `tandem_model_info` to the model that the service uses."""
    _MODEL.labels(service).info(
        {"fingerprint": model.fingerprint[:_FINGERPRINT_LENGTH], "precision": model.precision}
    )


def note_shard(service: str, number: int, count: int) -> None:
    """Adds this shard to `tandem_shard_info`."""
    _SHARD.labels(service, str(number)).info({"shard_count": str(count)})
