"""The ways in which an answer can be degraded."""

from collections.abc import Iterable

from tandem.contract.search.answer_names import DegradationKind
from tandem.contract.search_path import KeywordState
from tandem.search.coverage import SearchCoverage
from tandem.search.metrics import DEGRADED_ANSWERS
from tandem.search.query_encoder import EncodedQuery
from tandem.search.rerank.rerank import RerankOutcome


def degradations_of(
    encoded: EncodedQuery,
    coverage: SearchCoverage,
    rerank: RerankOutcome,
    by_stages: Iterable[DegradationKind] = (),
) -> tuple[DegradationKind, ...]:
    """Returns the answer's degradations, in the contract's order."""
    found = []
    if rerank.stop.is_short:
        found.append(
            DegradationKind.RERANK_PARTIAL
            if rerank.reranked_depth
            else DegradationKind.RERANK_SKIPPED
        )
    if coverage.missing:
        found.append(DegradationKind.SHARDS_MISSING)
    if rerank.missing_count:
        found.append(DegradationKind.TOKENS_MISSING)
    if encoded.is_model_unavailable:
        found.append(DegradationKind.EMBEDDING_CACHED)
    if coverage.is_rebuilding:
        found.append(DegradationKind.SHARD_REBUILDING)
    found += by_stages
    states = set(coverage.keyword_states)
    if states and KeywordState.SEARCHED not in states:
        found.append(DegradationKind.KEYWORDS_SKIPPED)
    elif len(states) > 1:
        found.append(DegradationKind.KEYWORDS_PARTIAL)
    return tuple(found)


for _each in DegradationKind:
    # A counter that first appears at its first count hides that count from rate().
    DEGRADED_ANSWERS.labels(_each.lower())
