"""What rerank_svc is told when it starts, from RERANK_… variables."""

from dataclasses import dataclass

from tandem.chassis.service_settings import ServiceSettings
from tandem.chassis.settings import AT_LEAST_0, setting
from tandem.item_store.item_store import DEFAULT_MAP_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankSettings(ServiceSettings):
    """Where Triton and the shard's items are, and limits."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7430")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7530)
    triton_address: str = setting("host:port of Triton's gRPC endpoint")
    triton_tls: bool = setting(
        "call Triton with the certificates of TLS_…, which it must be told to ask for",
        default=False,
    )
    model_repository: str = setting("folder with the exported model's manifest")
    store_path: str = setting("folder of the shard's item store, the one index_svc writes")
    shard_number: int = setting("which shard this is, from 0", within=AT_LEAST_0)
    shard_count: int = setting("how many shards there are")
    store_map_bytes: int = setting(
        "bytes of the store that are mapped at first; where it is larger, more are",
        default=DEFAULT_MAP_BYTES,
    )
    allow_any_file_system: bool = setting(
        "open a store on a network file system, where acknowledged writes can be lost",
        default=False,
    )
    score_cache_bytes: int = setting(
        "bytes of match logits that are kept for the next equal query; 0 for none",
        default=64 << 20,
    )
    max_inflight_count: int = setting("calls served at once; more are refused", default=128)
    thread_count: int = setting("reads of the item store at once", default=2)
    default_timeout_seconds: float = setting("for callers that set no deadline", default=10.0)
