"""Declares the settings of searches and ingests: ORCHESTRATOR_… variables or defaults."""

from dataclasses import dataclass

from tandem.chassis.settings import (
    AT_LEAST_1,
    SHARE,
    SHARE_OVER_0,
    SHARE_UNDER_1,
    Range,
    setting,
)


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Says how a search divides its time, and how it calls its stages."""

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
        within=Range("1 to 1,000", lambda value: 1 <= value <= 1_000),
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
    ingest_batch_timeout_seconds: float = setting(
        "to encode an ingest batch, and again to store it", default=60.0
    )
    ingest_pending_batch_count: int = setting("batches of one ingest stream in flight", default=4)
    ingest_encode_batch_count: int = setting(
        "batches of all streams encoded at once; others wait, and their time starts later",
        default=2,
    )
    generations_kept: bool = setting(
        "whether this orchestrator follows generations that no other one follows; requests are "
        "taken either way",
        default=True,
    )
    reembed_share: float = setting(
        "largest share of the time, over 0 to 1, that filling a generation works; slower searches "
        "reduce it",
        default=0.3,
        within=SHARE_OVER_0,
    )


SEARCH_DEFAULTS = SearchSettings()
"""What holds where nothing is set."""
