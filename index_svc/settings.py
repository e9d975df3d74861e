"""What index_svc is told from outside, as INDEX_... environment variables."""

from dataclasses import dataclass

from tandem.chassis.settings import AT_LEAST_0, SHARE, setting
from tandem.item_store.item_store import DEFAULT_MAP_BYTES


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """One shard's settings."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7420")
    metrics_port: int = setting("port of the Prometheus endpoint", default=7520)
    store_path: str = setting("folder of this shard's item store, on a local disk")
    shard_number: int = setting("which shard this is, from 0", within=AT_LEAST_0)
    shard_count: int = setting("how many shards there are")
    shard_map_version: int = setting(
        "of the shard map that callers must go by; the orchestrator's", default=1
    )
    store_map_bytes: int = setting(
        "most bytes the store may hold; keep it under the disk's room, for on a full disk "
        "deletes fail as well",
        default=DEFAULT_MAP_BYTES,
    )
    checked_at_start_bytes: int = setting(
        "largest store of which every page is checked at start; of a larger one, those that keys "
        "are found by",
        default=1 << 30,
    )
    allow_any_file_system: bool = setting(
        "open a store on a network file system, where acknowledged writes can be lost",
        default=False,
    )
    max_inflight_count: int = setting("calls at once; more are refused", default=64)
    max_inflight_bytes: int = setting(
        "bytes of requests under way at once; more are refused", default=256 * 1024 * 1024
    )
    thread_count: int = setting("searches and reads at once", default=4)
    commit_wait_seconds: float = setting(
        "longest that a write waits for others to share its commit", default=0.005
    )
    faiss_type: str = setting(
        "FAISS type of indexes that no operator tuned: auto, Flat, or a factory string",
        default="auto",
    )
    recall_target: float = setting(
        "share of the truly nearest that an approximate index must find", default=0.98, within=SHARE
    )
    faiss_memory_bytes: int = setting(
        "most bytes of FAISS's codes for each index and modality, for auto; 0 is no limit",
        default=0,
    )
    snapshot_change_count: int = setting(
        "changed items before a snapshot, and a fifth of all if that is more",
        default=5_000,
        within=AT_LEAST_0,
    )
    recall_sample_share: float = setting(
        "share of searches done again, exactly, to measure live recall", default=0.01
    )
    recall_window_seconds: float = setting("how far back live recall looks", default=300.0)
    recall_floor: float = setting(
        "live recall below it asks for a rebuild", default=0.95, within=SHARE
    )
    gpu_number: int = setting("GPU for FAISS indexes; -1 is none", default=-1)
    drain_notice_seconds: float = setting(
        "from NOT_SERVING to refusing calls, so that callers notice", default=0.0
    )
    grace_seconds: float = setting("for calls under way at shutdown", default=5.0)
