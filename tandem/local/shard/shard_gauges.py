"""Exports gauges that change with time alone, so they are read at each Prometheus scrape."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tandem.chassis.telemetry.metrics import REGISTRY


def _gauge(help_text: str) -> float | None:
    """Returns a dataclass field for a gauge; None gives no sample."""
    value: float | None = field(default=None, metadata={"help": help_text})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """Holds the value of each gauge tandem_index_<name>."""

    oldest_reader_age_seconds: float | None = _gauge(
        "Lower bound of how long a reader of the item store has kept freed pages from reuse."
    )
    commit_age_seconds: float | None = _gauge("Age of the newest commit since the start.")
    store_limit_bytes: float | None = _gauge("Size limit of the item store.")
    disk_free_bytes: float | None = _gauge("Free space on the item store's disk.")
    snapshot_age_seconds: float | None = _gauge(
        "Age of the newest snapshot, of the index where it is oldest."
    )
    unsaved_change_count: float | None = _gauge(
        "Changes since the newest snapshot, of the index with most."
    )
    queued_write_count: float | None = _gauge("Writes waiting to be committed.")


class ShardGauges(Collector):
    """Reads the state of each shard at each scrape."""

    label_names: Sequence[str] = ("shard",)

    def __init__(self) -> None:
        self._states: dict[str, Callable[[], ShardState]] = {}

    def follow(self, shard: str, state: Callable[[], ShardState]) -> None:
        """Calls `state` at each scrape from now on, in the scrape's thread."""
        self._states[shard] = state

    def forget(self, shard: str) -> None:
        """Ends the series of a shard."""
        self._states.pop(shard, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields a family for each gauge, without a sample where there is no value."""
        states = {shard: state() for shard, state in sorted(self._states.copy().items())}
        for name, each in ShardState.__dataclass_fields__.items():
            help_text = each.metadata["help"]
            family = GaugeMetricFamily(f"tandem_index_{name}", help_text, labels=self.label_names)
            for shard, state in states.items():
                if (value := getattr(state, name)) is not None:
                    family.add_metric([shard], value)
            yield family


SHARD_GAUGES = ShardGauges()
"""The gauges of this process."""
REGISTRY.register(SHARD_GAUGES)
