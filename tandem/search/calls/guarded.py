"""Guards stages: the same circuit breakers, retries and checks for each, here or elsewhere."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from tandem.contract.content import Content, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.index_description import IndexSummary
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.item_changes import ItemSelection
from tandem.errors import ModelOutputInvalid, ModelUnavailable, ServiceUnavailable, TandemError
from tandem.search.calls.guard import FAILURES, CallGuard
from tandem.search.calls.retry_budget import RetryBudget
from tandem.search.settings import SEARCH_DEFAULTS, SearchSettings
from tandem.stages.changes import ChangePage
from tandem.stages.encoding import EncodedBatch, EncodePurpose, Encoder
from tandem.stages.item_write import Committed, ShardWrite, is_refused_by_fence
from tandem.stages.items import Deleted, FetchedItems, ItemsQuery
from tandem.stages.neighbours import Graph, GraphScores, ShardNeighbourQuery, ShardNeighbours
from tandem.stages.notes import Note
from tandem.stages.reranking import (
    Candidates,
    GivenCandidates,
    Match,
    Reranker,
    ScoredBatch,
    ScoreQuery,
)
from tandem.stages.retrieval import ShardDescription, ShardQuery
from tandem.stages.shard import Shard
from tandem.stages.shard_answer import ShardAnswer

_T = TypeVar("_T")

_FENCE_POLL_SECONDS = 0.05
# Rounded, a cosine may exceed 1.
_HIGHEST_COSINE = 1.0 + 1e-4


class GuardedEncoder(Encoder):
    """Encodes queries with a retry, and items once."""

    def __init__(
        self,
        encoder: Encoder,
        retry_budget: RetryBudget | None = None,
        settings: SearchSettings = SEARCH_DEFAULTS,
        model_set: str = "",
    ) -> None:
        """Errors and metrics name it by `model_set`, and so the reranker."""
        self._encoder = encoder
        # Without its model, the encoder still answers from its cache.
        failures = tuple(each for each in FAILURES if each is not ModelUnavailable)
        self._guard = CallGuard(f"{model_set}encoder", retry_budget, settings, failures=failures)

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns each content's encoding or error, from one call."""
        call = self._guard.call if purpose is EncodePurpose.QUERY else self._guard.call_once
        encode = partial(
            self._encoder.encode, contents, purpose=purpose, truncation_policy=truncation_policy
        )
        return await call(encode, deadline)

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description; a failure does not count against the encoding."""
        return await self._guard.call_once(self._encoder.describe_model, deadline)


class GuardedShard(Shard):
    """Reads with a retry, and writes once; a write waits while a fence refuses it."""

    def __init__(
        self,
        shard: Shard,
        number: int,
        retry_budget: RetryBudget | None = None,
        settings: SearchSettings = SEARCH_DEFAULTS,
    ) -> None:
        self._shard = shard
        self._guard = CallGuard(f"index-{number}", retry_budget, settings)
        # Of their own: a search needs the index, and neither neighbours nor a description.
        self._neighbours = CallGuard(f"neighbours-{number}", retry_budget, settings)
        self._descriptions = CallGuard(f"description-{number}", retry_budget, settings)
        self.is_left = False
        """Whether its items are on other shards, so that no write waits for it."""

    def note_late(self, waited_seconds: float) -> None:
        """Notes that a search was abandoned after that time."""
        self._guard.note_late(waited_seconds)

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings."""
        return await self._guard.call(partial(self._shard.search, query), deadline)

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns the neighbours among the shard's items."""
        return await self._neighbours.call(partial(self._shard.find_neighbours, query), deadline)

    async def get(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        """Returns the first items of the query."""
        return await self._guard.call(partial(self._shard.get, query), deadline)

    async def write(self, write: ShardWrite, deadline: Deadline) -> Committed:
        """Stores or deletes all items or none, or notes something."""
        return await self._once_without_fence(partial(self._shard.write, write), deadline)

    async def notes(self, prefix: str, deadline: Deadline) -> Sequence[Note]:
        """Returns the notes whose keys begin so."""
        return await self._descriptions.call(partial(self._shard.notes, prefix), deadline)

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns changes after a sequence."""
        reading = partial(self._shard.changes, after_sequence, max_count)
        return await self._descriptions.call(reading, deadline)

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the index, or a part of a large one."""
        dropping = partial(self._shard.delete_index, index_id)
        return await self._once_without_fence(dropping, deadline)

    async def list_item_ids(
        self,
        index_id: str,
        after: str,
        max_count: int,
        deadline: Deadline,
        selection: ItemSelection | None = None,
    ) -> Sequence[str]:
        """Returns ids after that one."""
        return await self._guard.call(
            lambda end: self._shard.list_item_ids(index_id, after, max_count, end, selection),
            deadline,
        )

    async def describe_index(self, index_id: str, deadline: Deadline) -> ShardDescription:
        """Returns the state of the index."""
        describing = partial(self._shard.describe_index, index_id)
        return await self._descriptions.call(describing, deadline)

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id."""
        listing = partial(self._shard.list_indexes, after, max_count, index_ids)
        return await self._descriptions.call(listing, deadline)

    async def _once_without_fence(
        self, work: Callable[[Deadline], Awaitable[_T]], deadline: Deadline
    ) -> _T:
        """Does the work once, and again while a fence refuses it."""
        while True:
            try:
                return await self._guard.call_once(work, deadline)
            except ServiceUnavailable as error:
                is_late = deadline.left() < 2 * _FENCE_POLL_SECONDS
                if self.is_left or is_late or not is_refused_by_fence(error):
                    raise
            await asyncio.sleep(_FENCE_POLL_SECONDS)


class GuardedReranker(Reranker):
    """Scores with a retry; raises ModelOutputInvalid for scores that are no scores."""

    def __init__(
        self,
        reranker: Reranker,
        number: int,
        retry_budget: RetryBudget | None = None,
        settings: SearchSettings = SEARCH_DEFAULTS,
        model_set: str = "",
    ) -> None:
        """Names the reranker by its shard's number."""
        self._reranker = reranker
        self._name = f"{model_set}rerank-{number}"
        self._guard = CallGuard(self._name, retry_budget, settings)
        # Of its own: a neighbour model that fails must not stop the cross-encoder.
        self._graph_name = f"{model_set}graph-{number}"
        self._graphs = CallGuard(self._graph_name, retry_budget, settings)

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        return self._guard.is_refusing

    @property
    def is_refusing_graphs(self) -> bool:
        """Whether the circuit breaker would refuse a graph now."""
        return self._graphs.is_refusing

    async def score(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        """Returns each request's scores or error; raises the error of a single request."""

        async def scored(end: Deadline) -> ScoredBatch:
            batch = await self._reranker.score(query, requests, end)
            if len(requests) == 1:
                self._check(batch.matches.values())
                return batch
            for outcome in batch.outcomes:
                if not isinstance(outcome, TandemError):
                    self._check(outcome.values())
            return batch

        return await self._guard.call(scored, deadline)

    async def score_given(
        self, given: GivenCandidates, deadline: Deadline
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Returns the scores of candidates that are not stored."""

        async def scored(end: Deadline) -> tuple[Sequence[Match], ScoredBatch]:
            matches, batch = await self._reranker.score_given(given, end)
            self._check(matches)
            return matches, batch

        return await self._guard.call(scored, deadline)

    async def score_graph(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Returns the scores of the graph's items."""

        async def scored(end: Deadline) -> GraphScores:
            made = await self._reranker.score_graph(graph, end)
            if len(made.scores) != (count := len(graph.nodes) - 1):
                why = f"{len(made.scores)} scores of {count}"
                raise ModelOutputInvalid(model=self._graph_name, why=why)
            if not all(abs(score) <= _HIGHEST_COSINE for score in made.scores):
                raise ModelOutputInvalid(model=self._graph_name, why="a score is not a cosine")
            return made

        return await self._graphs.call(scored, deadline)

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Describes the model; a failure does not count against the scoring."""
        return await self._guard.call_once(self._reranker.describe_model, deadline)

    def _check(self, matches: Iterable[Match]) -> None:
        for match in matches:
            if not (math.isfinite(match.logit) and 0.0 <= (match.probability or 0.0) <= 1.0):
                raise ModelOutputInvalid(model=self._name, why="a score is not a number")
