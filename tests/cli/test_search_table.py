"""What the table prints about a degraded answer."""

from tandem.cli.search.search_table import warnings
from tandem.client import (
    Coverage,
    DegradationKind,
    ErrorReason,
    RerankStopReason,
    RerankSummary,
    SearchResult,
    StageSeconds,
    TextUse,
)

FULL = Coverage(4, 4, 60, 60, {})


def result(
    degradations: tuple[str, ...],
    rerank: RerankSummary,
    text_uses: tuple[TextUse, ...] = (),
    coverage: Coverage = FULL,
) -> SearchResult:
    """Returns an answer without items."""
    seconds = StageSeconds(0.0, 0.0, 0.0, 0.0, 0.0)
    return SearchResult(
        (), "f1", seconds, coverage, rerank, tuple(map(DegradationKind, degradations)), text_uses
    )


def test_each_degradation_is_printed() -> None:
    said = {
        "RERANK_SKIPPED": "not reranked: unavailable; docs/runbook.md says what to do",
        "RERANK_PARTIAL": "only the first 8 candidates were reranked: unavailable; "
        "docs/runbook.md says what to do",
        "TOKENS_MISSING": "3 of the candidates have no tokens for the cross-encoder; ingest them "
        "again with the model that serves",
        "EMBEDDING_CACHED": "the encoder's model is unavailable; the encoding came from a cache; "
        "docs/runbook.md says what to do",
        "SHARD_REBUILDING": "a shard scanned all items, because its index is being built",
        "SOMETHING_NEWER": "SOMETHING_NEWER",
    }
    answer = result(tuple(said), RerankSummary(8, RerankStopReason.UNAVAILABLE, 3))

    assert warnings(answer) == list(said.values())


def test_missing_shards_are_printed_once() -> None:
    partial = Coverage(1, 2, 30, 60, {1: ErrorReason.DEADLINE_EXCEEDED})
    summary = RerankSummary(20, RerankStopReason.COMPLETE)

    flagged = warnings(result(("SHARDS_MISSING",), summary, coverage=partial))

    assert flagged == warnings(result((), summary, coverage=partial))
    assert flagged == [
        "partial answer: 1 of 2 shards (30 of 60 items) were searched; shard 1: DEADLINE_EXCEEDED"
    ]
