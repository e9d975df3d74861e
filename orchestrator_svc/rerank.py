"""The stage that has the cross-encoder read the candidates, from the first on."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator_svc.clients import ShardClient
from orchestrator_svc.fan_out import fan_out
from orchestrator_svc.hit import Hit, MatchScore
from orchestrator_svc.query import SearchQuery
from orchestrator_svc.shard_map import ShardMap
from tandem.content import Tokens
from tandem.inference_cost import InferenceCost


class RerankStop(enum.Enum):
    """Why a rerank ended; names are the contract's."""

    COMPLETE = "complete"
    DISABLED = "disabled"
    NOT_APPLICABLE = "not_applicable"
    TIME = "time"
    ADAPTIVE = "adaptive"
    UNAVAILABLE = "unavailable"
    OUTPUT_INVALID = "output_invalid"
    OVERLOADED = "overloaded"


@dataclass(frozen=True, slots=True)
class RerankOutcome:
    """How deep the cross-encoder got, and what it found."""

    stop: RerankStop
    reranked_depth: int = 0
    """Candidates, from the first in retrieval order, that were put to it."""
    matches: Mapping[str, MatchScore] = field(default_factory=dict)
    """By item id."""
    missing_count: int = 0
    """Of the candidates put to it, those that were no longer there."""
    cost: InferenceCost = field(default_factory=InferenceCost)


class Reranker:
    """Has each shard's rerank_svc score the candidates that lie on it."""

    def __init__(self, shards: Sequence[ShardClient], shard_map: ShardMap) -> None:
        self._shards = shards
        self._shard_map = shard_map

    async def rerank(
        self,
        query: SearchQuery,
        tokens: Tokens,
        fingerprint: str,
        hits: Sequence[Hit],
        deadline_time: float,
    ) -> RerankOutcome:
        """Returns the scores of the first `rerank_k` hits, which come in retrieval order."""
        candidates = [hit.item_id for hit in hits[: query.depth.rerank_k]]
        scored = await fan_out(
            *(
                self._shards[number].score(
                    query.index_id, tokens, fingerprint, item_ids, deadline_time
                )
                for number, item_ids in self._shard_map.group(query.index_id, candidates).items()
            )
        )
        matches = {item_id: match for found in scored for item_id, match in found.items()}
        return RerankOutcome(
            RerankStop.COMPLETE, len(candidates), matches, len(candidates) - len(matches)
        )


def joined_outcome(outcomes: Sequence[RerankOutcome]) -> RerankOutcome:
    """Returns what reranks of the modalities of one answer found together.

    Why they ended is said of the first that did not end well; one that did not apply says nothing.
    """
    applied = [each for each in outcomes if each.stop is not RerankStop.NOT_APPLICABLE]
    if len(applied) < 2:
        return applied[0] if applied else outcomes[0]
    stops = [each.stop for each in applied if each.stop is not RerankStop.COMPLETE]
    return RerankOutcome(
        stops[0] if stops else RerankStop.COMPLETE,
        sum(each.reranked_depth for each in applied),
        {item_id: match for each in applied for item_id, match in each.matches.items()},
        sum(each.missing_count for each in applied),
        sum((each.cost for each in applied), InferenceCost()),
    )
