"""Defines the settings of index_svc: the INDEX_... environment variables."""

from dataclasses import dataclass

from tandem.chassis.settings import AT_LEAST_0, SHARE, setting
from tandem.local.item_store.item_store import DEFAULT_MAP_BYTES
from tandem.remote.index_engine import EngineSettings


@dataclass(frozen=True, kw_only=True)
class IndexSettings(EngineSettings):
    """Holds the settings of one shard."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7420")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7520)
    max_inflight_count: int = setting("calls in flight; more are refused", default=128)
    store_path: str = setting(
        "folder of this shard's item store; must be on a local disk, and is required with the "
        "engine lmdb",
        default="",
    )
    shard_map_version: int = setting(
        "shard map version that calls must have; the same as the orchestrator's", default=1
    )
    store_map_bytes: int = setting(
        "size limit of the store in bytes; keep it below the disk's size, because on a full disk "
        "deletes fail too",
        default=DEFAULT_MAP_BYTES,
    )
    checked_at_start_bytes: int = setting(
        "largest store of which every page is checked at start; of a larger one, only pages on "
        "the way to a key",
        default=1 << 30,
    )
    allow_any_file_system: bool = setting(
        "open a store on a network file system, where acknowledged writes can be lost",
        default=False,
    )
    backup_url: str = setting(
        "place in an object store below which an operator's calls back up the shard, for example "
        "s3://backups/tandem; empty for none; needs the extra object-store",
        default="",
    )
    max_index_count: int = setting(
        "indexes that the shard may have; writes that would create more are refused",
        default=4_096,
    )
    thread_count: int = setting("concurrent searches and reads", default=4)
    commit_wait_seconds: float = setting(
        "longest time a write waits for others to share its commit", default=0.005
    )
    faiss_type: str = setting(
        "FAISS type of indexes without a tuning: auto, Flat, or a factory string",
        default="auto",
    )
    recall_target: float = setting(
        "share of the truly nearest items that an approximate index must find",
        default=0.98,
        within=SHARE,
    )
    faiss_memory_bytes: int = setting(
        "limit on FAISS codes per index and modality in bytes, for auto; 0 for no limit",
        default=0,
    )
    memory_bytes: int = setting(
        "memory of the process that items may take, apart from files that the kernel may drop; "
        "writes that would exceed it are refused, and rows that do not fit into what is left are "
        "kept as bytes; 0 for no limit",
        default=0,
        within=AT_LEAST_0,
    )
    snapshot_change_count: int = setting(
        "changed items that trigger a snapshot, or a fifth of all items if that is more",
        default=5_000,
        within=AT_LEAST_0,
    )
    recall_sample_share: float = setting(
        "share of searches that are repeated exactly to measure live recall", default=0.01
    )
    recall_window_seconds: float = setting("time window of live recall", default=300.0)
    recall_floor: float = setting(
        "live recall that triggers a rebuild when it falls below", default=0.95, within=SHARE
    )
    keywords_enabled: bool = setting(
        "keep the words of items in memory, so that hybrid searches find items by them",
        default=False,
    )
    keyword_attributes: tuple[str, ...] = setting(
        "attributes of items, comma-separated, whose words find them, in addition to the content "
        "of texts",
        default=("caption",),
    )
    gpu_number: int = setting(
        "GPU for FAISS indexes, with a faiss for GPUs; -1 for none", default=-1
    )

    def __post_init__(self) -> None:
        """Raises SettingsError unless a store is named."""
        self.check_store("INDEX_", self.store_path)
