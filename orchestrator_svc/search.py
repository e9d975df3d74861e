"""One query, straight through: encode, retrieve from every shard, rerank beside each shard."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator_svc.clients import EncoderClient, FetchedItem, ShardClient
from orchestrator_svc.consistency_token import read_tokens
from orchestrator_svc.coverage import Coverage
from orchestrator_svc.depth import Depth
from orchestrator_svc.fan_out import fan_out
from orchestrator_svc.metrics import StageClock
from orchestrator_svc.ranking import MatchScore, RankedHit, rank_hits
from orchestrator_svc.retrieval import Retrieval, Retriever
from orchestrator_svc.shard_map import ShardMap
from tandem.content import Content, Encoding, Modality
from tandem.filters import Filter
from tandem.identifiers import check_index_id


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to look for, where, and how deep."""

    content: Content
    index_id: str
    target_modality: Modality
    depth: Depth
    is_reranked: bool
    is_content_included: bool
    where: Filter | None = None
    """What the items' attributes must be; None finds all."""
    consistency_tokens: Sequence[str] = ()
    """Of writes that the search must see."""
    is_full_coverage_required: bool = False


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The items, best first, and the seconds each stage took."""

    ranked: Sequence[RankedHit]
    contents: Mapping[str, FetchedItem]
    """With attributes, by item id; empty unless the query asked for contents."""
    model_fingerprint: str
    coverage: Coverage
    stage_seconds: Mapping[str, float] = field(default_factory=dict)


class Searcher:
    """Answers queries over all shards of an index."""

    def __init__(
        self,
        encoder: EncoderClient,
        shards: Sequence[ShardClient],
        shard_map: ShardMap,
        clock: StageClock,
        *,
        minimum_coverage: float = 0.5,
        retrieval_time_share: float = 0.5,
    ) -> None:
        """`shards` by number, as many as the map has; the shares are of 1."""
        self._encoder = encoder
        self._shards = shards
        self._shard_map = shard_map
        self._clock = clock
        self._retriever = Retriever(
            shards, minimum_coverage=minimum_coverage, time_share=retrieval_time_share
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
            encoding, fingerprint = await self._encoder.encode_one(query.content, deadline_time)
        with self._clock.stage("retrieve", seconds):
            hits, coverage = await self._retriever.retrieve(
                Retrieval(
                    query.index_id,
                    encoding.embedding,
                    fingerprint,
                    query.target_modality,
                    query.content.modality,
                    query.depth.retrieve_k,
                    minimum_sequences,
                    query.is_full_coverage_required,
                    query.where,
                ),
                deadline_time,
            )
        matches: Mapping[str, MatchScore] = {}
        # The cross-encoder reads a text and an image; two of a kind keep the retrieval order.
        if query.is_reranked and query.target_modality is not encoding.tokens.modality:
            with self._clock.stage("rerank", seconds):
                candidates = [hit.item_id for hit in hits[: query.depth.rerank_k]]
                matches = await self._rerank(
                    query, candidates, encoding, fingerprint, deadline_time
                )
        ranked = rank_hits(hits, matches)[: query.depth.return_n]
        contents: Mapping[str, FetchedItem] = {}
        if query.is_content_included:
            with self._clock.stage("fetch", seconds):
                contents = await self._fetch(query.index_id, ranked, deadline_time)
        seconds["total"] = time.perf_counter() - start_time
        return SearchAnswer(ranked, contents, fingerprint, coverage, seconds)

    async def _rerank(
        self,
        query: SearchQuery,
        candidates: Sequence[str],
        encoding: Encoding,
        fingerprint: str,
        deadline_time: float,
    ) -> Mapping[str, MatchScore]:
        scored = await fan_out(
            *(
                self._shards[number].score(
                    query.index_id, encoding.tokens, fingerprint, item_ids, deadline_time
                )
                for number, item_ids in self._shard_map.group(query.index_id, candidates).items()
            )
        )
        return {item_id: match for matches in scored for item_id, match in matches.items()}

    async def _fetch(
        self, index_id: str, ranked: Sequence[RankedHit], deadline_time: float
    ) -> Mapping[str, FetchedItem]:
        item_ids = [entry.hit.item_id for entry in ranked]
        fetched = await fan_out(
            *(
                self._shards[number].get(index_id, owned, deadline_time)
                for number, owned in self._shard_map.group(index_id, item_ids).items()
            )
        )
        return {item_id: content for contents in fetched for item_id, content in contents.items()}
