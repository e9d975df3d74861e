"""Answers every call of the public API over the stages of a search."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeVar

from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_SEARCH_COUNT, check_batch_size
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.answer import IngestOutcome, Removal, SearchResult
from tandem.contract.search.documents import DocumentQuery, ScoredDocuments
from tandem.contract.search.indexes import IndexDescription, IndexPage
from tandem.contract.search.ingest import IngestBatch
from tandem.contract.search.query import PageQuery, SearchQuery
from tandem.contract.search.score_calibration import ScoreCalibration
from tandem.errors import TandemError
from tandem.search.batch_search import BatchSearcher
from tandem.search.contents.documents import DocumentScorer
from tandem.search.contents.stored_items import StoredItems
from tandem.search.indexes.index_list import IndexList
from tandem.search.indexes.index_survey import IndexSurvey
from tandem.search.search import Searcher
from tandem.search.writes.ingest_stream import IngestStream
from tandem.search.writes.removal import Remover

Request = TypeVar("Request")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Orchestrator:
    """Searches, stores and describes, over all shards of all indexes.

    An IndexNotFound that it raises names some indexes that the caller may search.
    """

    searcher: Searcher
    batch_searcher: BatchSearcher
    ingest_stream: IngestStream
    remover: Remover
    survey: IndexSurvey
    index_list: IndexList
    stored_items: StoredItems
    documents: DocumentScorer
    describe_encoder: Callable[[Deadline], Awaitable[ModelDescription]]

    async def search(self, query: SearchQuery, deadline: Deadline) -> SearchResult:
        """Returns the answer, as `Searcher.search` does."""
        async with self.index_list.naming():
            return await self.searcher.search(query, deadline)

    async def page(self, query: PageQuery, deadline: Deadline) -> SearchResult:
        """Returns another page of an earlier answer, as `Searcher.page` does."""
        return await self.searcher.page(query, deadline)

    async def stream(
        self, query: SearchQuery, deadline: Deadline
    ) -> AsyncGenerator[SearchResult, None]:
        """Yields the answer in retrieval order, then the one that `search` would return."""
        async with aclosing(self.searcher.stream(query, deadline)) as answers:
            async with self.index_list.naming():
                retrieved = await anext(answers)
            yield retrieved
            yield await anext(answers)

    async def search_each(
        self, queries: Sequence[SearchQuery | TandemError], deadline: Deadline
    ) -> Sequence[SearchResult | TandemError]:
        """Returns each query's answer or error; raises BatchSizeOutOfRange."""
        check_batch_size("searches", len(queries), MAX_SEARCH_COUNT)
        return await self.index_list.named_each(
            await self.batch_searcher.search_each(queries, deadline)
        )

    async def score_documents(self, query: DocumentQuery, deadline: Deadline) -> ScoredDocuments:
        """Returns each document's score or error, as `DocumentScorer.score` does."""
        async with self.index_list.naming():
            return await self.documents.score(query, deadline)

    def ingest(
        self,
        requests: AsyncIterator[Request],
        read_batch: Callable[[Request], Awaitable[IngestBatch]],
    ) -> AsyncGenerator[list[IngestOutcome], None]:
        """Yields each batch's outcomes, as `IngestStream.answers` does."""
        return self.ingest_stream.answers(requests, read_batch)

    async def remove(
        self, index_id: str, item_ids: Sequence[str], request_id: str, deadline: Deadline
    ) -> Removal:
        """Deletes items, as `Remover.remove` does."""
        return await self.remover.remove(index_id, item_ids, request_id, deadline)

    async def remove_index(self, index_id: str, deadline: Deadline) -> Removal:
        """Deletes an index, or a part of a large one, as `Remover.remove_index` does."""
        # Another index of the same name will have other null scores.
        await self.searcher.services.calibrations.forget(index_id, deadline)
        async with self.index_list.naming():
            return await self.remover.remove_index(index_id, deadline)

    async def set_calibrations(
        self, index_id: str, measured: Sequence[ScoreCalibration], deadline: Deadline
    ) -> int:
        """Says what the scores of an index mean; returns how many calibrations it has."""
        async with self.index_list.naming():
            await self.survey.describe(index_id, deadline)
        return await self.searcher.services.calibrations.put(index_id, measured, deadline)

    async def describe_index(
        self, index_id: str, deadline: Deadline, *, full_coverage_required: bool = False
    ) -> IndexDescription:
        """Returns the state of an index, as `IndexSurvey.describe` does."""
        async with self.index_list.naming():
            return await self.survey.describe(
                index_id, deadline, full_coverage_required=full_coverage_required
            )

    async def list_indexes(
        self, after: str, size: int, deadline: Deadline, *, full_coverage_required: bool = False
    ) -> IndexPage:
        """Returns indexes that the caller may search, as `IndexList.page` does."""
        return await self.index_list.page(
            after, size, deadline, full_coverage_required=full_coverage_required
        )

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the encoder's model, with the rules of the first reranker that answers."""
        model = await self.describe_encoder(deadline)
        try:
            cross_encoder = await self.searcher.depth_rules.describe(deadline)
        except TandemError:
            # Searches work without a cross-encoder, and so does this.
            return model
        if model.fingerprint != cross_encoder.fingerprint:
            return model
        return replace(
            model,
            probability_calibration=cross_encoder.probability_calibration,
            adaptive_depth_rule=cross_encoder.adaptive_depth_rule,
            neighbour_model=cross_encoder.neighbour_model,
        )
