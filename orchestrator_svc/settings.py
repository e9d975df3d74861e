"""The orchestrator's settings, from ORCHESTRATOR_… variables."""

from dataclasses import dataclass

from tandem.chassis.capacity.admission import AdmissionLimits
from tandem.chassis.serve.service import ServiceSettings
from tandem.chassis.settings import (
    AT_LEAST_1,
    SHARE,
    SHARE_OVER_0,
    SHARE_UNDER_1,
    Range,
    SettingsError,
    setting,
)

IN_PROCESS = "in-process"
"""The address of a service that the orchestrator's own process runs (`python -m embedded`)."""


def is_in_process(address: str) -> bool:
    """Returns whether it is IN_PROCESS, alone or as IN_PROCESS@host:port."""
    return address.partition("@")[0] == IN_PROCESS


@dataclass(frozen=True, kw_only=True, slots=True)
class OrchestratorSettings(ServiceSettings):
    """Holds the addresses of the downstream services, and limits."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7400")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7500)
    encoder_address: str = setting(
        "host:port of encoder_svc; in-process, with `python -m embedded`, runs it in the "
        "orchestrator's process"
    )
    index_addresses: tuple[str, ...] = setting(
        "host:port of index_svc for each shard, in the shards' order; in-process@host:port, with "
        "`python -m embedded`, runs it in the orchestrator's process, and serves its operators at "
        "host:port"
    )
    rerank_addresses: tuple[str, ...] = setting(
        "host:port of rerank_svc for each shard, in the shards' order; in-process, with `python -m "
        "embedded`, runs it in the orchestrator's process"
    )
    shard_map_version: int = setting(
        "version of the addresses above; shards with another version refuse calls",
        default=1,
        within=AT_LEAST_1,
    )
    minimum_coverage: float = setting(
        "share of an index's items, 0 to 1, that a search must cover; less is refused; 0 accepts "
        "what one shard of several has",
        default=0.0,
        within=SHARE,
    )
    encode_time_share: float = setting(
        "share of a search's time, over 0 to 1, for encoding its query; a longer one fails",
        default=0.7,
        within=SHARE_OVER_0,
    )
    retrieval_time_share: float = setting(
        "share of a search's remaining time, over 0 to 1, to wait for a late shard if the others "
        "cover enough",
        default=0.5,
        within=SHARE_OVER_0,
    )
    retrieval_wait_seconds: float = setting(
        "longest such wait; a search with full_coverage_required waits on", default=2.0
    )
    reserve_time_share: float = setting(
        "share of a search's time, 0 to under 1, that the rerank leaves to later stages",
        default=0.1,
        within=SHARE_UNDER_1,
    )
    neighbours_time_share: float = setting(
        "share of a search's time, 0 to under 1, that the rerank leaves to the order by "
        "neighbours, where a search asks for it",
        default=0.2,
        within=SHARE_UNDER_1,
    )
    neighbour_pool_count: int = setting(
        "items of each modality on each shard, nearest to the query, among which neighbours are "
        "found where FAISS does not search; 1 to 1,000",
        default=512,
        within=Range(words="1 to 1,000", least=1, most=1_000),
    )
    rerank_chunk_seconds: float = setting(
        "target time of one chunk of pairs for the cross-encoder, when time is short",
        default=0.05,
    )
    rerank_chunk_pair_count: int = setting(
        "most pairs in one chunk for the cross-encoder, when time is plenty", default=64
    )
    breaker_consecutive_count: int = setting(
        "consecutive failures that open a service's circuit breaker", default=5
    )
    breaker_failure_share: float = setting(
        "share of failures among the last 20 calls, over 0 to 1, that opens the circuit breaker",
        default=0.5,
        within=SHARE_OVER_0,
    )
    breaker_probe_seconds: float = setting(
        "between two probes of a service whose circuit breaker is open", default=1.0
    )
    retry_share: float = setting(
        "share of calls, 0 to under 1, that may be retried if the service is unavailable",
        default=0.1,
        within=SHARE_UNDER_1,
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
    ingest_batch_timeout_seconds: float = setting(
        "to encode an ingest batch, and again to store it", default=60.0
    )
    ingest_pending_batch_count: int = setting("batches of one ingest stream in flight", default=4)
    ingest_encode_batch_count: int = setting(
        "batches of all streams encoded at once; others wait, and their time starts later",
        default=2,
    )

    def __post_init__(self) -> None:
        counts = len(self.index_addresses), len(self.rerank_addresses)
        if counts[0] != counts[1] or not counts[0]:
            raise SettingsError(
                "ORCHESTRATOR_INDEX_ADDRESSES and ORCHESTRATOR_RERANK_ADDRESSES must name the same "
                f"number of shards, at least one; they name {counts[0]} and {counts[1]}"
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
