"""Declares the RERANK_… settings."""

from dataclasses import dataclass

from tandem.chassis.service_settings import ServiceSettings
from tandem.chassis.settings import AT_LEAST_0, setting
from tandem.item_store.item_store import DEFAULT_MAP_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankSettings(ServiceSettings):
    """Configures the model, the shard's item store, the cache and the limits."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7430")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7530)
    triton_address: str = setting("host:port of Triton's gRPC endpoint")
    triton_tls: bool = setting(
        "whether to call Triton with the certificates of TLS_…",
        default=False,
    )
    model_repository: str = setting("folder with the exported model's manifest")
    store_path: str = setting("folder of the shard's item store, which index_svc writes")
    shard_number: int = setting("number of this shard, from 0", within=AT_LEAST_0)
    shard_count: int = setting("number of shards")
    store_map_bytes: int = setting(
        "bytes of the store to map at first; a larger store maps more",
        default=DEFAULT_MAP_BYTES,
    )
    allow_any_file_system: bool = setting(
        "whether to open a store on a network file system, where acknowledged writes can be lost",
        default=False,
    )
    score_cache_bytes: int = setting(
        "size of the cache of match logits, in bytes; 0 turns it off",
        default=64 << 20,
    )
    token_cache_bytes: int = setting(
        "size of the cache of image tokens, for a model that recomputes them from stored pictures, "
        "in bytes; 0 turns it off",
        default=256 << 20,
        within=AT_LEAST_0,
    )
    max_inflight_count: int = setting("calls in flight; more are refused", default=128)
    thread_count: int = setting("threads that read the item store", default=2)
    default_timeout_seconds: float = setting("deadline of calls that set none", default=10.0)
