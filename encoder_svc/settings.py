"""Declares the ENCODER_… settings."""

from dataclasses import dataclass

from tandem.chassis.serve.service import ServiceSettings
from tandem.chassis.settings import setting


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSettings(ServiceSettings):
    """Configures the model, the cache and the limits."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7410")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7510)
    triton_address: str = setting(
        "host:port of Triton's gRPC endpoint, or ipv4:host:port,host:port of several"
    )
    triton_tls: bool = setting(
        "whether to call Triton with the certificates of TLS_…",
        default=False,
    )
    model_repository: str = setting("folder with the exported model's manifest and tokenizer")
    query_cache_bytes: int = setting(
        "size of the cache of query encodings, in bytes; 0 turns it off",
        default=64 << 20,
    )
    max_inflight_count: int = setting("calls in flight; more are refused", default=128)
    thread_count: int = setting("threads that decode images", default=2)
    heif_enabled: bool = setting(
        "whether to read HEIC and AVIF images too; needs the extra heif", default=False
    )
    default_timeout_seconds: float = setting("deadline of calls that set none", default=10.0)
