"""The ways in which an answer can be degraded."""

import enum
from collections.abc import Sequence

from tandem.contract.search_path import KeywordState
from tandem.search.coverage import SearchCoverage
from tandem.search.metrics import DEGRADED_ANSWERS
from tandem.search.neighbours.outcome import NeighbourOutcome
from tandem.search.query_encoder import EncodedQuery
from tandem.search.rerank.rerank import RerankOutcome


class Degradation(enum.Enum):
    """Names a way in which an answer is degraded; names are the contract's."""

    RERANK_SKIPPED = "rerank_skipped"
    RERANK_PARTIAL = "rerank_partial"
    SHARDS_MISSING = "shards_missing"
    TOKENS_MISSING = "tokens_missing"
    EMBEDDING_CACHED = "embedding_cached"
    SHARD_REBUILDING = "shard_rebuilding"
    NEIGHBOURS_SKIPPED = "neighbours_skipped"
    NEIGHBOURS_PARTIAL = "neighbours_partial"
    KEYWORDS_SKIPPED = "keywords_skipped"
    KEYWORDS_PARTIAL = "keywords_partial"


def degradations_of(
    encoded: EncodedQuery,
    coverage: SearchCoverage,
    rerank: RerankOutcome,
    neighbours: NeighbourOutcome | None = None,
) -> Sequence[Degradation]:
    """Returns the answer's degradations, in the contract's order."""
    found = []
    if rerank.stop.is_short:
        found.append(
            Degradation.RERANK_PARTIAL if rerank.reranked_depth else Degradation.RERANK_SKIPPED
        )
    if coverage.missing:
        found.append(Degradation.SHARDS_MISSING)
    if rerank.missing_count:
        found.append(Degradation.TOKENS_MISSING)
    if encoded.is_model_unavailable:
        found.append(Degradation.EMBEDDING_CACHED)
    if coverage.is_rebuilding:
        found.append(Degradation.SHARD_REBUILDING)
    if neighbours and neighbours.stop.is_short:
        found.append(Degradation.NEIGHBOURS_SKIPPED)
    elif neighbours and neighbours.missing:
        found.append(Degradation.NEIGHBOURS_PARTIAL)
    states = set(coverage.keyword_states)
    if states and KeywordState.SEARCHED not in states:
        found.append(Degradation.KEYWORDS_SKIPPED)
    elif len(states) > 1:
        found.append(Degradation.KEYWORDS_PARTIAL)
    return found


for _each in Degradation:
    # A counter that first appears at its first count hides that count from rate().
    DEGRADED_ANSWERS.labels(_each.value)
