"""Which model and which shard a process serves, for whoever compares processes in Prometheus."""

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
    "Which shard this process serves, of how many.",
    ["service"],
    registry=REGISTRY,
)
# As in tables and logs; the rest tells nobody more.
_FINGERPRINT_LENGTH = 12


def note_model(service: str, model: ModelDescription) -> None:
    """Tells in `tandem_model_info` by which model's weights the service answers."""
    _MODEL.labels(service).info(
        {"fingerprint": model.fingerprint[:_FINGERPRINT_LENGTH], "precision": model.precision}
    )


def note_shard(service: str, number: int, count: int) -> None:
    """Tells in `tandem_shard_info` which shard this is."""
    _SHARD.labels(service).info({"shard": str(number), "shard_count": str(count)})
