"""What index_svc tells Prometheus about its shard."""

from prometheus_client import Counter, Gauge, Histogram

from index_svc.retrieval.hit import Strategy
from tandem.chassis.metrics import REFUSALS, REGISTRY, stage_histogram
from tandem.errors import StoreFull

STAGE_DURATION = stage_histogram("index")
"""Stages: search and read (calls), commit and apply (one for all writes of a transaction)."""

ITEMS = Gauge(
    "tandem_index_items",
    "Items that searches can find, over all indexes.",
    ["modality"],
    registry=REGISTRY,
)
COMMIT_RECORDS = Histogram(
    "tandem_index_commit_records",
    "Records that shared one transaction.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    registry=REGISTRY,
)
CORRUPT_ITEMS = Counter(
    "tandem_index_corrupt_items_total",
    "Stored items that failed their checksum at start and are not found by searches.",
    registry=REGISTRY,
)
SHARD_CORRUPT = Gauge(
    "tandem_index_shard_corrupt",
    "1 where the item store is damaged and was not opened.",
    registry=REGISTRY,
)
STORE_USED_BYTES = Gauge(
    "tandem_index_store_used_bytes",
    "Bytes of the item store's map that were ever used.",
    registry=REGISTRY,
)
LIVE_RECALL = Gauge(
    "tandem_index_live_recall_ratio",
    "Share of the truly nearest items that sampled searches of the last window found.",
    ["direction"],
    registry=REGISTRY,
)
LIVE_RECALL_SEARCHES = Gauge(
    "tandem_index_live_recall_searches",
    "Searches behind tandem_index_live_recall_ratio.",
    ["direction"],
    registry=REGISTRY,
)
LIST_IMBALANCE = Gauge(
    "tandem_index_list_imbalance_ratio",
    "FAISS's imbalance factor of the lists of the index whose are most uneven: 1 is even.",
    ["modality"],
    registry=REGISTRY,
)
REBUILD_REQUESTS = Counter(
    "tandem_index_rebuild_requests_total",
    "Times that a FAISS index was asked to be built anew: recall (live recall fell), "
    "recall_pinned (it fell, and the tuning is an operator's: nothing is done), operator.",
    ["cause"],
    registry=REGISTRY,
)
MAINTENANCE_DURATION = Histogram(
    "tandem_index_maintenance_duration_seconds",
    "Wall time of background work: rebuild, fold, snapshot, recall.",
    ["work"],
    buckets=(0.001, 0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1800),
    registry=REGISTRY,
)
MAINTENANCE_FAILURES = Counter(
    "tandem_index_maintenance_failures_total",
    "Background work that failed; the log says why.",
    registry=REGISTRY,
)
SNAPSHOT_SEQUENCE = Gauge(
    "tandem_index_snapshot_sequence",
    "Where the change log stood at the newest snapshot.",
    registry=REGISTRY,
)
SNAPSHOTS_REFUSED = Counter(
    "tandem_index_snapshots_refused_total",
    "Snapshots found at start that were not as written, or not of this store.",
    registry=REGISTRY,
)
SEARCHES = Counter(
    "tandem_index_searches_total",
    "Queries by how the nearest items were found.",
    ["strategy"],
    registry=REGISTRY,
)

# A counter that first shows itself at its first count hides that count from rate().
for _cause in ("recall", "recall_pinned", "operator"):
    REBUILD_REQUESTS.labels(_cause)
for _work in ("rebuild", "fold", "snapshot", "recall"):
    MAINTENANCE_DURATION.labels(_work)
for _strategy in (each for each in Strategy if each is not Strategy.UNKNOWN):
    SEARCHES.labels(_strategy.name.lower())
for _method in ("UpsertItems", "DeleteItems"):
    REFUSALS.labels("index", _method, StoreFull.reason)
