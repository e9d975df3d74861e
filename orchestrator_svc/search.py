"""One query, straight through: encode, retrieve from every shard, rerank beside each shard."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from orchestrator_svc.clients import EncoderClient, FetchedItem, ShardClient
from orchestrator_svc.consistency_token import read_tokens
from orchestrator_svc.coverage import Coverage, joined_coverage
from orchestrator_svc.fan_out import fan_out
from orchestrator_svc.hit import Hit
from orchestrator_svc.metrics import StageClock
from orchestrator_svc.query import SearchQuery
from orchestrator_svc.query_encoder import EncodedQuery, QueryEncoder
from orchestrator_svc.ranking import RankedHit, rank_answer
from orchestrator_svc.rerank import Reranker, RerankOutcome, RerankStop, joined_outcome
from orchestrator_svc.retrieval import Retrieval, Retriever
from orchestrator_svc.shard_map import ShardMap
from tandem.identifiers import check_index_id


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The items, best first, and the seconds each stage took."""

    ranked: Sequence[RankedHit]
    contents: Mapping[str, FetchedItem]
    """With attributes, by item id; empty unless the query asked for contents."""
    encoded: EncodedQuery
    coverage: Coverage
    rerank: RerankOutcome
    query: SearchQuery
    remaining: Sequence[RankedHit] = ()
    """What follows the items, for further pages."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict)


class Searcher:
    """Answers queries over all shards of an index."""

    def __init__(
        self,
        query_encoder: QueryEncoder,
        retriever: Retriever,
        reranker: Reranker,
        shards: Sequence[ShardClient],
        shard_map: ShardMap,
        clock: StageClock,
    ) -> None:
        """`shards` by number, as many as the map has."""
        self._query_encoder = query_encoder
        self._retriever = retriever
        self._reranker = reranker
        self._shards = shards
        self._shard_map = shard_map
        self._clock = clock

    @classmethod
    def over(
        cls,
        encoder: EncoderClient,
        shards: Sequence[ShardClient],
        shard_map: ShardMap,
        clock: StageClock,
        *,
        minimum_coverage: float = 0.5,
        retrieval_time_share: float = 0.5,
    ) -> Self:
        """Returns a searcher over these services; the shares are of 1."""
        return cls(
            QueryEncoder(encoder, shards, shard_map),
            Retriever(shards, minimum_coverage=minimum_coverage, time_share=retrieval_time_share),
            Reranker(shards, shard_map),
            shards,
            shard_map,
            clock,
        )

    async def search(self, query: SearchQuery, deadline_time: float) -> SearchAnswer:
        """Returns the answer, or raises the named error of whichever stage failed.

        Only retrieval may do without a shard, and says so in the answer's coverage. What it found
        is reranked and fetched wholly: an item without content was deleted since.

        `deadline_time` is on the monotonic clock; no stage gets more than what is left of it.
        """
        check_index_id(query.index_id)
        minimum_sequences = read_tokens(query.consistency_tokens, self._shard_map)
        start_time = time.perf_counter()
        seconds: dict[str, float] = {}
        with self._clock.stage("encode", seconds):
            encoded = await self._query_encoder.encode(query, deadline_time)
        with self._clock.stage("retrieve", seconds):
            hits, coverage = await self._retrieve(query, encoded, minimum_sequences, deadline_time)
        outcome = await self._rerank(query, encoded, hits, seconds, deadline_time)
        with self._clock.stage("rank", seconds):
            order = rank_answer(query, hits, outcome.matches)
            return_n = query.depth.return_n
            ranked, remaining = order[:return_n], order[return_n:]
        contents: Mapping[str, FetchedItem] = {}
        if query.is_content_included:
            with self._clock.stage("fetch", seconds):
                contents = await self.fetch(query.index_id, ranked, deadline_time)
        seconds["total"] = time.perf_counter() - start_time
        return SearchAnswer(ranked, contents, encoded, coverage, outcome, query, remaining, seconds)

    async def _retrieve(
        self,
        query: SearchQuery,
        encoded: EncodedQuery,
        minimum_sequences: Mapping[int, int],
        deadline_time: float,
    ) -> tuple[list[Hit], Coverage]:
        """Returns the hits of each modality in retrieval order, the target's first."""
        retrieved = await fan_out(
            *(
                self._retriever.retrieve(
                    Retrieval(
                        query.index_id,
                        encoded.embeddings,
                        encoded.fingerprint,
                        modality,
                        encoded.modality,
                        query.depth.retrieve_k,
                        minimum_sequences,
                        query.is_full_coverage_required,
                        query.where,
                        query.ranking.are_embeddings_needed,
                    ),
                    deadline_time,
                )
                for modality in query.modalities
            )
        )
        hits = [hit for found, _ in retrieved for hit in found]
        return hits, joined_coverage([coverage for _, coverage in retrieved])

    async def _rerank(
        self,
        query: SearchQuery,
        encoded: EncodedQuery,
        hits: Sequence[Hit],
        seconds: dict[str, float],
        deadline_time: float,
    ) -> RerankOutcome:
        """Reranks the modalities that the cross-encoder can, the target first."""
        if not query.is_reranked:
            return RerankOutcome(RerankStop.DISABLED)
        outcomes = []
        for modality in query.modalities:
            candidates = [hit for hit in hits if hit.modality is modality]
            tokens = encoded.tokens_for(modality, candidates)
            if tokens is None:
                outcomes.append(RerankOutcome(RerankStop.NOT_APPLICABLE))
                continue
            with self._clock.stage("rerank", seconds):
                outcomes.append(
                    await self._reranker.rerank(
                        query, tokens, encoded.fingerprint, candidates, deadline_time
                    )
                )
        return joined_outcome(outcomes)

    async def fetch(
        self, index_id: str, ranked: Sequence[RankedHit], deadline_time: float
    ) -> Mapping[str, FetchedItem]:
        """Returns the contents and attributes of those that are still there, by item id."""
        item_ids = [entry.hit.item_id for entry in ranked]
        fetched = await fan_out(
            *(
                self._shards[number].get(index_id, owned, deadline_time)
                for number, owned in self._shard_map.group(index_id, item_ids).items()
            )
        )
        return {item_id: content for contents in fetched for item_id, content in contents.items()}
