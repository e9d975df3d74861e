"""Declares the metrics of generations: those of aliases that this process keeps."""

from collections.abc import Sequence

from tandem.chassis.telemetry.metrics import Counter, Gauge
from tandem.search.indexes.follower import Follower

REEMBED_LAG = Gauge(
    "tandem_orchestrator_reembed_lag_count",
    "Changes of the shards' logs that the generation has not followed yet.",
    ["index_id"],
)
REEMBED_SCANNED = Gauge(
    "tandem_orchestrator_reembed_scanned_count",
    "Items that were read of the serving generation for this one.",
    ["index_id"],
)
REEMBED_WAITS = Gauge(
    "tandem_orchestrator_reembed_waits",
    "1 while the generation gets nothing, because it lacks room or its encoder.",
    ["index_id"],
)
REEMBED_FAILURES = Gauge(
    "tandem_orchestrator_reembed_failed_items",
    "Items that the generation's model cannot encode, as far as they are named.",
    ["index_id"],
)
REEMBED_FAULTS = Counter(
    "tandem_orchestrator_reembed_faults_total",
    "How often following a generation ended with an error, and began again.",
)
SWITCHES = Counter(
    "tandem_orchestrator_generation_requests_total",
    "Requests to promote, roll back or drop a generation that this process carried out.",
    ["kind", "outcome"],
)
FENCE_SECONDS = Gauge(
    "tandem_orchestrator_fence_seconds",
    "For how long the last promotion or rollback of the alias, or the last try, held up writes.",
    ["index_id"],
)
for _kind in ("promote", "rollback", "drop"):
    for _outcome in ("done", "refused"):
        SWITCHES.labels(_kind, _outcome)


def note_followers(index_id: str, followers: Sequence[Follower]) -> None:
    """Shows how far the followers into a generation are, one for each shard."""
    at = [each.progress for each in followers]
    REEMBED_LAG.labels(index_id).set(sum(each.lag for each in followers))
    REEMBED_SCANNED.labels(index_id).set(sum(each.scanned_count for each in at))
    REEMBED_WAITS.labels(index_id).set(any(each.waits_for for each in at))
    REEMBED_FAILURES.labels(index_id).set(sum(len(each.failed) for each in at))


def forget(index_id: str) -> None:
    """Shows the generation no longer."""
    for metric in (REEMBED_LAG, REEMBED_SCANNED, REEMBED_WAITS, REEMBED_FAILURES):
        metric.remove_by_labels({"index_id": index_id})
