"""Encodes, searches and scores for several searches in one call each."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, islice

from tandem.contract.content import Content, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import MAX_ITEM_ID_BYTES
from tandem.contract.limits import (
    MAX_CONTENT_COUNT,
    MAX_EMBEDDING_COUNT,
    MAX_PAIR_COUNT,
    MAX_SCORE_QUERY_COUNT,
)
from tandem.contract.model_description import ModelDescription
from tandem.errors import TandemError
from tandem.search.calls.call_batcher import CallBatcher, OpenSearches
from tandem.search.rerank.rerank import CandidateScorer
from tandem.search.retrieval import SearchedShard
from tandem.stages.encoding import EncodedBatch, EncodePurpose, Encoder
from tandem.stages.reranking import Candidates, ScoredBatch, ScoreQuery
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import ShardAnswer

# Of a message's 64 MiB.
_MAX_ANSWER_BYTES = 48 * 2**20
# Its similarity, and the lengths of its parts.
_HIT_BYTES = 32


class BatchedEncoder(Encoder):
    """Encodes the contents of several searches in one call."""

    def __init__(self, encoder: Encoder, searches: OpenSearches) -> None:
        self._encoder = encoder
        self._batcher = CallBatcher[
            tuple[EncodePurpose, TruncationPolicy], Sequence[Content], EncodedBatch
        ](self._encode_all, searches, max_size=MAX_CONTENT_COUNT)
        self.close = self._batcher.close

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns each content's encoding or error, and their part of the cost."""
        return await self._batcher.ask(
            (purpose, truncation_policy), contents, len(contents), deadline
        )

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that encodes."""
        return await self._encoder.describe_model(deadline)

    async def _encode_all(
        self,
        key: tuple[EncodePurpose, TruncationPolicy],
        requests: Sequence[Sequence[Content]],
        deadline: Deadline,
    ) -> Sequence[EncodedBatch]:
        purpose, truncation_policy = key
        made = await self._encoder.encode(
            [content for contents in requests for content in contents],
            deadline,
            purpose=purpose,
            truncation_policy=truncation_policy,
        )
        counts = [len(contents) for contents in requests]
        outcomes = iter(made.outcomes)
        return [
            replace(made, outcomes=list(islice(outcomes, count)), cost=cost)
            for count, cost in zip(counts, made.cost.divided(counts), strict=True)
        ]


class BatchedShard:
    """Searches a shard in one call for those searches whose `ShardQuery` is equal."""

    def __init__(self, shard: SearchedShard, searches: OpenSearches) -> None:
        self._shard = shard
        self._batcher = CallBatcher[tuple[ShardQuery, int], ShardQuery, ShardAnswer](
            self._search_all, searches, max_size=MAX_EMBEDDING_COUNT
        )
        self.close = self._batcher.close
        self.note_late = shard.note_late

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings."""
        # An embedding that does not fit the index fails alone.
        dimension = len(query.embeddings[0])
        size = len(query.embeddings)
        if query.embeddings_included:
            # Words may find as many again.
            size *= answer_share(dimension, query.retrieve_k * (2 if query.keywords else 1))
        return await self._batcher.ask((query, dimension), query, size, deadline)

    async def _search_all(
        self, _: tuple[ShardQuery, int], queries: Sequence[ShardQuery], deadline: Deadline
    ) -> Sequence[ShardAnswer]:
        embeddings = [embedding for each in queries for embedding in each.embeddings]
        answer = await self._shard.search(replace(queries[0], embeddings=embeddings), deadline)
        counts = [len(each.embeddings) for each in queries]
        return [
            answer.part(stop - count, stop)
            for count, stop in zip(counts, accumulate(counts), strict=True)
        ]


class BatchedReranker:
    """Scores the candidates of several searches in one call."""

    def __init__(self, reranker: CandidateScorer, searches: OpenSearches) -> None:
        self._reranker = reranker
        self._batcher = CallBatcher[ScoreQuery, Candidates, ScoredBatch](
            self._score_all,
            searches,
            max_size=MAX_PAIR_COUNT,
            max_request_count=MAX_SCORE_QUERY_COUNT,
        )
        self.close = self._batcher.close

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        return self._reranker.is_refusing

    async def score(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        """Returns the scores of one request, and their part of the cost; raises its error."""
        [request] = requests
        return await self._batcher.ask(query, request, len(request.item_ids), deadline)

    async def _score_all(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> Sequence[ScoredBatch | TandemError]:
        scored = await self._reranker.score(query, requests, deadline)
        costs = scored.cost.divided([len(each.item_ids) for each in requests])
        return [
            outcome
            if isinstance(outcome, TandemError)
            else replace(scored, outcomes=[outcome], cost=share)
            for outcome, share in zip(scored.outcomes, costs, strict=True)
        ]


def answer_share(dimension: int, retrieve_k: int) -> int:
    """Returns how many queries one counts as if its hits are returned with their embeddings.

    So the answer to 64 such queries fits into one message.
    """
    answer_bytes = retrieve_k * (4 * dimension + MAX_ITEM_ID_BYTES + _HIT_BYTES)
    return math.ceil(answer_bytes * MAX_EMBEDDING_COUNT / _MAX_ANSWER_BYTES)
