"""What the orchestrator is told when it starts, from ORCHESTRATOR_… variables."""

from dataclasses import dataclass

from tandem.chassis.admission import AdmissionLimits
from tandem.chassis.service_settings import ServiceSettings
from tandem.chassis.settings import (
    AT_LEAST_1,
    SHARE,
    SHARE_OVER_0,
    SHARE_UNDER_1,
    SettingsError,
    setting,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrchestratorSettings(ServiceSettings):
    """Addresses of the services behind, and limits."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7400")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7500)
    encoder_address: str = setting("host:port of encoder_svc")
    index_addresses: tuple[str, ...] = setting(
        "host:port of index_svc for each shard, in the shards' order"
    )
    rerank_addresses: tuple[str, ...] = setting(
        "host:port of rerank_svc for each shard, in the shards' order"
    )
    shard_map_version: int = setting(
        "of the addresses above; shards that were told another refuse", default=1, within=AT_LEAST_1
    )
    minimum_coverage: float = setting(
        "share of an index's items, 0 to 1, that a search must see to be answered",
        default=0.5,
        within=SHARE,
    )
    encode_time_share: float = setting(
        "share of a search's time, over 0 to 1, by which its query is encoded, or it fails",
        default=0.7,
        within=SHARE_OVER_0,
    )
    retrieval_time_share: float = setting(
        "share of a search's time left, over 0 to 1, that a shard is waited for where the others "
        "are enough; the rest is for what comes after",
        default=0.5,
        within=SHARE_OVER_0,
    )
    reserve_time_share: float = setting(
        "share of a search's time, 0 to under 1, that the rerank leaves to what comes after it",
        default=0.1,
        within=SHARE_UNDER_1,
    )
    rerank_chunk_seconds: float = setting(
        "what the cross-encoder is given at once takes about this long, where time is short",
        default=0.05,
    )
    rerank_chunk_pair_count: int = setting(
        "most pairs that the cross-encoder is given at once, where time is plenty", default=64
    )
    breaker_consecutive_count: int = setting(
        "failures in a row after which a service behind is spared", default=5
    )
    breaker_failure_share: float = setting(
        "share of failures, over 0 to 1, among the last 20 calls, from which it is spared",
        default=0.5,
        within=SHARE_OVER_0,
    )
    breaker_probe_seconds: float = setting(
        "between two tries of a service that is spared", default=1.0
    )
    retry_share: float = setting(
        "share of calls, 0 to 1, that may be made a second time where nobody was there",
        default=0.1,
        within=SHARE_UNDER_1,
    )
    start_wait_seconds: float = setting(
        "at start, for every service behind to serve; from then on those that searches need are "
        "enough",
        default=10.0,
    )
    max_inflight_count: int = setting(
        "searches and removals served at once; more are refused", default=32
    )
    max_ingest_stream_count: int = setting(
        "ingest streams open at once; more are refused", default=16
    )
    max_ingest_stream_count_by_caller: int = setting(
        "of these, of one token or, where tokens are not asked for, of one host", default=8
    )
    ingest_idle_seconds: float = setting(
        "after which an ingest stream is ended that sends nothing, or takes no answer",
        default=300.0,
    )
    max_ingest_batch_count: int = setting(
        "batches of all ingest streams under way at once; more wait at their senders", default=16
    )
    max_ingest_bytes: int = setting(
        "bytes of such batches; more wait at their senders", default=256 * 1024 * 1024
    )
    default_timeout_seconds: float = setting("for callers that set no deadline", default=10.0)
    max_timeout_seconds: float = setting(
        "most that a search takes, whatever deadline its caller set", default=60.0
    )
    ingest_batch_timeout_seconds: float = setting(
        "for a batch to be encoded, and again to be stored", default=60.0
    )
    ingest_pending_batch_count: int = setting(
        "batches of one ingest stream under way at once", default=4
    )
    ingest_encode_batch_count: int = setting(
        "batches encoded at once, of all streams; others wait, and their time does not run",
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
            max_stream_count_by_caller=self.max_ingest_stream_count_by_caller,
            max_idle_seconds=self.ingest_idle_seconds,
            max_stream_message_count=self.max_ingest_batch_count,
            max_stream_bytes=self.max_ingest_bytes,
            call_weights={"BatchSearchItems": lambda request: len(request.searches)},
        )
