"""What is read off a shard when Prometheus asks, for it changes with time alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tandem.chassis.metrics import REGISTRY


def _gauge(help_text: str) -> float | None:
    """Returns a field of a gauge's value; None is no sample."""
    value: float | None = field(default=None, metadata={"help": help_text})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """A value for each of the gauges tandem_index_<name>."""

    oldest_reader_age_seconds: float | None = _gauge(
        "At least how long a reader of the item store has kept freed pages from being used again."
    )
    commit_age_seconds: float | None = _gauge("Since the newest commit of this process.")
    store_limit_bytes: float | None = _gauge("How large the item store may become.")
    disk_free_bytes: float | None = _gauge("Room on the item store's disk.")
    snapshot_age_seconds: float | None = _gauge(
        "Since the newest snapshot was written; of the index whose is oldest."
    )
    unsaved_change_count: float | None = _gauge(
        "Changes since the newest snapshot; of the index that has most."
    )
    queued_write_count: float | None = _gauge("Writes that wait to be committed.")


class ShardGauges(Collector):
    """Asks for the state at each scrape."""

    def __init__(self) -> None:
        self._state: Callable[[], ShardState] = ShardState

    def follow(self, state: Callable[[], ShardState]) -> None:
        """Has `state` called from now on, from the threads of scrapes."""
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields a family for each gauge, without a sample where there is no value."""
        state = self._state()
        for name, each in ShardState.__dataclass_fields__.items():
            family = GaugeMetricFamily(f"tandem_index_{name}", each.metadata["help"])
            if (value := getattr(state, name)) is not None:
                family.add_metric([], value)
            yield family


SHARD_GAUGES = ShardGauges()
"""This process's."""
REGISTRY.register(SHARD_GAUGES)
