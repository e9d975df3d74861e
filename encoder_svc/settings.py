"""What encoder_svc is told when it starts, from ENCODER_… variables."""

from dataclasses import dataclass

from tandem.chassis.service_settings import ServiceSettings
from tandem.chassis.settings import setting


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSettings(ServiceSettings):
    """Where Triton is, and limits."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7410")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7510)
    triton_address: str = setting("host:port of Triton's gRPC endpoint")
    triton_tls: bool = setting(
        "call Triton with the certificates of TLS_…, which it must be told to ask for",
        default=False,
    )
    model_repository: str = setting("folder with the exported model's manifest and tokenizer")
    query_cache_bytes: int = setting(
        "bytes of queries' encodings that are kept for the next equal query; 0 for none",
        default=64 << 20,
    )
    max_inflight_count: int = setting("calls served at once; more are refused", default=128)
    thread_count: int = setting("images decoded at once", default=2)
    default_timeout_seconds: float = setting("for callers that set no deadline", default=10.0)
