"""Declares how a shard commits and looks after its indexes: INDEX_… variables, or defaults."""

from dataclasses import dataclass

from tandem.chassis.settings import AT_LEAST_0, SHARE, setting


@dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """Holds what an operator sets, or the engine of a process."""

    checked_at_start_bytes: int = setting(
        "largest store of which every page is checked at start; of a larger one, only pages on "
        "the way to a key",
        default=1 << 30,
    )
    max_index_count: int = setting(
        "indexes that the shard may have; writes that would create more are refused",
        default=4_096,
    )
    commit_wait_seconds: float = setting(
        "longest time a write waits for others to share its commit; a lone writer's does not",
        default=0.005,
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


SHARD_DEFAULTS = ShardSettings()
"""What holds where nothing is set."""
