"""What index_svc tells Prometheus about its shard."""

from prometheus_client import Counter, Gauge, Histogram

from tandem.chassis.metrics import REGISTRY, stage_histogram

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
