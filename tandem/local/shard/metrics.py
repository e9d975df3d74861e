"""Defines the metrics of index_svc.

Gauges have a series for each shard, as one process may have several; counters and durations are
those of all of them.
"""

from tandem.chassis.telemetry.metrics import (
    REFUSALS,
    Counter,
    Gauge,
    Histogram,
    kept_series,
    stage_histogram,
)
from tandem.contract.search_path import KeywordState, SearchStrategy
from tandem.errors import StoreFull

STAGE_DURATION = stage_histogram("index")
"""Stages: search, keywords (a part of it), neighbours and read for calls; commit and apply once for
all writes of a transaction."""

ITEMS = Gauge(
    "tandem_index_items",
    "Items that searches can find, over all indexes.",
    ["shard", "modality"],
)
COMMIT_RECORDS = Histogram(
    "tandem_index_commit_records",
    "Records that shared one transaction.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
)
CORRUPT_ITEMS = Counter(
    "tandem_index_corrupt_items_total",
    "Stored items that failed their checksum and were taken out of searches.",
)
SHARD_CORRUPT = Gauge(
    "tandem_index_shard_corrupt",
    "1 if the item store is damaged and was not opened.",
    ["shard"],
)
STORE_USED_BYTES = Gauge(
    "tandem_index_store_used_bytes",
    "Bytes of the item store's map that have ever been used.",
    ["shard"],
)
LIVE_RECALL = Gauge(
    "tandem_index_live_recall_ratio",
    "Share of the truly nearest items that sampled searches in the last window found.",
    ["shard", "direction"],
)
LIVE_RECALL_SEARCHES = Gauge(
    "tandem_index_live_recall_searches",
    "Searches that tandem_index_live_recall_ratio was measured on.",
    ["shard", "direction"],
)
LIST_IMBALANCE = Gauge(
    "tandem_index_list_imbalance_ratio",
    "FAISS's imbalance factor of the index with the most uneven lists; 1 is even.",
    ["shard", "modality"],
)
REBUILD_REQUESTS = Counter(
    "tandem_index_rebuild_requests_total",
    "Requests to rebuild a FAISS index: recall (live recall fell), recall_pinned (it fell, but an "
    "operator pinned the tuning, so nothing is done), operator.",
    ["cause"],
)
MAINTENANCE_DURATION = Histogram(
    "tandem_index_maintenance_duration_seconds",
    "Wall time of background work: rebuild, fold, snapshot, recall.",
    ["work"],
    buckets=(0.001, 0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1800),
)
MAINTENANCE_FAILURES = Counter(
    "tandem_index_maintenance_failures_total",
    "Failures of background work; the log has the reason.",
)
SNAPSHOT_SEQUENCE = Gauge(
    "tandem_index_snapshot_sequence",
    "Position of the change log at the newest snapshot.",
    ["shard"],
)
BACKUP_TIME = Gauge(
    "tandem_index_backup_time_seconds",
    "Unix time of the newest backup that was made by call.",
    ["shard"],
)
SNAPSHOTS_REFUSED = Counter(
    "tandem_index_snapshots_refused_total",
    "Snapshots rejected at start: damaged, or of another store.",
)
SEARCHES = Counter(
    "tandem_index_searches_total",
    "Queries by search strategy.",
    ["strategy"],
)
SEARCHES_OF = kept_series(SEARCHES)
KEYWORD_SEARCHES = Counter(
    "tandem_index_keyword_searches_total",
    "Queries with words, by what became of these: searched, disabled (the shard keeps no words), "
    "being_built.",
    ["state"],
)

# A series that first appears with its first count hides that count from rate().
for _cause in ("recall", "recall_pinned", "operator"):
    REBUILD_REQUESTS.labels(_cause)
for _work in ("rebuild", "fold", "snapshot", "recall"):
    MAINTENANCE_DURATION.labels(_work)
for _strategy in (each for each in SearchStrategy if each is not SearchStrategy.UNKNOWN):
    SEARCHES.labels(_strategy.name.lower())
for _state in KeywordState:
    KEYWORD_SEARCHES.labels(_state.name.lower())
for _method in ("UpsertItems", "PatchItems", "DeleteItems"):
    REFUSALS.labels("index", _method, StoreFull.reason)
