"""The orchestrator's settings, from ORCHESTRATOR_… variables."""

from dataclasses import dataclass

from tandem.chassis.capacity.admission import AdmissionLimits
from tandem.chassis.serve.service import ServiceSettings
from tandem.chassis.settings import SettingsError, setting
from tandem.search.settings import SearchSettings

IN_PROCESS = "in-process"
"""The address of a service that the orchestrator's own process runs (`python -m merged_svc`)."""


def is_in_process(address: str) -> bool:
    """Returns whether it is IN_PROCESS, alone or as IN_PROCESS@host:port."""
    return address.partition("@")[0] == IN_PROCESS


@dataclass(frozen=True, kw_only=True, slots=True)
class OrchestratorSettings(SearchSettings, ServiceSettings):
    """Holds the addresses of the downstream services, and limits."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7400")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7500)
    encoder_address: str = setting(
        "host:port of encoder_svc; in-process, with `python -m merged_svc`, runs it in the "
        "orchestrator's process"
    )
    index_addresses: tuple[str, ...] = setting(
        "host:port of index_svc for each shard, in the shards' order; in-process@host:port, with "
        "`python -m merged_svc`, runs it in the orchestrator's process, and serves its operators "
        "at host:port"
    )
    rerank_addresses: tuple[str, ...] = setting(
        "host:port of rerank_svc for each shard, in the shards' order; in-process, with `python -m "
        "merged_svc`, runs it in the orchestrator's process"
    )
    next_encoder_address: str = setting(
        "host:port of an encoder_svc with another model, for a generation of its own; empty for "
        "none",
        default="",
    )
    next_rerank_addresses: tuple[str, ...] = setting(
        "host:port of the second model's rerank_svc for each shard, in the shards' order",
        default=(),
    )
    shard_map_file: str = setting(
        "file that `tandem move` writes, followed while serving: once it exists, its shards take "
        "the place of the addresses above and of the shard map's version; empty for none",
        default="",
    )
    start_wait_seconds: float = setting(
        "to wait at start for all downstream services; then the encoder and one index_svc are "
        "enough",
        default=10.0,
    )
    max_inflight_count: int = setting(
        "searches and removals in flight; more are refused", default=32
    )
    max_ingest_stream_count: int = setting("open ingest streams; more are refused", default=16)
    ingest_idle_seconds: float = setting(
        "after which an ingest stream that sends nothing is ended",
        default=300.0,
    )
    max_ingest_batch_count: int = setting(
        "batches of all ingest streams in flight; more wait at their senders", default=16
    )
    max_ingest_bytes: int = setting(
        "bytes of ingest batches in flight; more wait at their senders", default=256 * 1024 * 1024
    )
    default_timeout_seconds: float = setting("for callers that set no deadline", default=10.0)
    max_timeout_seconds: float = setting(
        "longest time for a search, whatever deadline its caller sets", default=60.0
    )

    def __post_init__(self) -> None:
        counts = len(self.index_addresses), len(self.rerank_addresses)
        if counts[0] != counts[1] or not counts[0]:
            raise SettingsError(
                "ORCHESTRATOR_INDEX_ADDRESSES and ORCHESTRATOR_RERANK_ADDRESSES must name the same "
                f"number of shards, at least one; they name {counts[0]} and {counts[1]}"
            )
        named = len(self.next_rerank_addresses)
        if named != (counts[0] if self.next_encoder_address else 0):
            raise SettingsError(
                "ORCHESTRATOR_NEXT_RERANK_ADDRESSES must name as many as "
                "ORCHESTRATOR_INDEX_ADDRESSES with ORCHESTRATOR_NEXT_ENCODER_ADDRESS, and none "
                f"without; it names {named}"
            )

    def admission_limits(self) -> AdmissionLimits:
        """Returns how many calls and ingest streams the orchestrator admits at once."""
        return AdmissionLimits(
            max_inflight_count=self.max_inflight_count,
            max_inflight_bytes=self.max_inflight_bytes,
            max_stream_count=self.max_ingest_stream_count,
            max_idle_seconds=self.ingest_idle_seconds,
            max_stream_message_count=self.max_ingest_batch_count,
            max_stream_bytes=self.max_ingest_bytes,
            call_weights={"BatchSearchItems": lambda request: len(request.searches)},
        )
