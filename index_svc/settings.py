"""Defines the settings of index_svc: the INDEX_... environment variables."""

from dataclasses import dataclass

from tandem.chassis.settings import setting
from tandem.local.item_store.item_store import DEFAULT_MAP_BYTES
from tandem.local.shard.settings import ShardSettings
from tandem.remote.index_engine import EngineSettings


@dataclass(frozen=True, kw_only=True)
class IndexSettings(ShardSettings, EngineSettings):
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
    allow_any_file_system: bool = setting(
        "open a store on a network file system, where acknowledged writes can be lost",
        default=False,
    )
    backup_url: str = setting(
        "place in an object store below which an operator's calls back up the shard, for example "
        "s3://backups/tandem; empty for none; needs the extra object-store",
        default="",
    )
    thread_count: int = setting("concurrent searches and reads", default=4)

    def __post_init__(self) -> None:
        """Raises SettingsError unless a store is named."""
        self.check_store("INDEX_", self.store_path)
