"""Answers every call of the public API over the stages of a search."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from tandem.contract.content import Content, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_SEARCH_COUNT, check_batch_size
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.answer import Removal, SearchResult
from tandem.contract.search.documents import DocumentQuery, ScoredDocuments
from tandem.contract.search.indexes import IndexDescription
from tandem.contract.search.item_changes import (
    Changes,
    ItemListing,
    ItemsChange,
    ItemsRemoval,
    KeptItem,
)
from tandem.contract.search.query import PageQuery, SearchQuery
from tandem.contract.search.score_calibration import ScoreCalibration
from tandem.errors import IndexNotFound, ModelMismatch, TandemError
from tandem.search.calls.fan_out import fan_out
from tandem.search.contents.stored_items import StoredItems
from tandem.search.indexes.calibrations import Calibrations
from tandem.search.indexes.generations import Generations
from tandem.search.indexes.index_list import IndexList
from tandem.search.indexes.index_survey import IndexSurvey
from tandem.search.indexes.keeper import Keeper
from tandem.search.indexes.router import ModelSet, Query, Route, Router
from tandem.search.indexes.shadow import Shadow
from tandem.search.metrics import note_generation
from tandem.search.writes.changes import Changer
from tandem.search.writes.ingest_stream import IngestStream
from tandem.search.writes.removal import Remover
from tandem.stages.encoding import EncodedBatch
from tandem.stages.items import FetchedItem, ItemsQuery

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Orchestrator:
    """Searches, stores and describes, over all shards of all indexes.

    A call finds at its start which generation of the index it is about, and by which models: all
    that it asks of shards names that one. An IndexNotFound that it raises names what the caller
    named, and some indexes that the caller may search.
    """

    router: Router
    ingest_stream: IngestStream
    remover: Remover
    changer: Changer
    survey: IndexSurvey
    index_list: IndexList
    stored_items: StoredItems
    shadow: Shadow
    generations: Generations
    keeper: Keeper
    """Does nothing until it begins."""

    async def search(self, query: SearchQuery, deadline: Deadline) -> SearchResult:
        """Returns the answer, as `Searcher.search` does."""
        timeout_seconds = deadline.left()

        async def answered(models: ModelSet, own: SearchQuery) -> SearchResult:
            return await models.searcher.search(own, deadline)

        def offer(route: Route, outcome: SearchResult | TandemError) -> None:
            if route.index_id == route.record.serving:
                self.shadow.offer(route.record, query, outcome, timeout_seconds)

        async with self.index_list.naming(query.index_id):
            return await self._routed(query, deadline, answered, offer)

    async def page(self, query: PageQuery, deadline: Deadline) -> SearchResult:
        """Returns another page of an earlier answer, as `Searcher.page` does."""
        searcher = self.router.sets[0].searcher
        return await searcher.page(query, deadline, self.router.check_kept)

    async def stream(
        self, query: SearchQuery, deadline: Deadline
    ) -> AsyncGenerator[SearchResult, None]:
        """Yields the answer in retrieval order, then the one that `search` would return."""

        async def begun(
            models: ModelSet, own: SearchQuery
        ) -> tuple[SearchResult, AsyncGenerator[SearchResult, None]]:
            answers = models.searcher.stream(own, deadline)
            return await anext(answers), answers

        async with self.index_list.naming(query.index_id):
            retrieved, answers = await self._routed(query, deadline, begun)
        async with aclosing(answers):
            yield retrieved
            yield await anext(answers)

    async def search_each(
        self, queries: Sequence[SearchQuery | TandemError], deadline: Deadline
    ) -> Sequence[SearchResult | TandemError]:
        """Returns each query's answer or error; raises BatchSizeOutOfRange."""
        check_batch_size("searches", len(queries), MAX_SEARCH_COUNT)
        asked = {n: each for n, each in enumerate(queries) if isinstance(each, SearchQuery)}
        found: dict[int, SearchResult | TandemError] = {
            n: each for n, each in enumerate(queries) if isinstance(each, TandemError)
        }
        routes: dict[int, Route] = {}
        for number, query in asked.items():
            try:
                routes[number] = await self.router.query_route(query, deadline)
            except TandemError as error:
                found[number] = error.kept()
        found |= await self._found(asked, routes, deadline)
        others: dict[int, Route] = {}
        for number, route in routes.items():
            if isinstance(refused := found[number], ModelMismatch | IndexNotFound):
                with suppress(TandemError):
                    others[number] = await self.router.again(refused, route, deadline)
        found |= await self._found(asked, others, deadline)
        return await self.index_list.named_each(
            [found[number] for number in range(len(queries))],
            [asked[number].index_id if number in asked else "" for number in range(len(queries))],
        )

    async def score_documents(self, query: DocumentQuery, deadline: Deadline) -> ScoredDocuments:
        """Returns each document's score or error, as `DocumentScorer.score` does."""
        if not query.index_id:
            return await self.router.sets[0].documents.score(query, deadline)
        async with self.index_list.naming(query.index_id):
            return await self._routed(
                query, deadline, lambda models, own: models.documents.score(own, deadline)
            )

    async def embed(
        self,
        contents: Sequence[Content | TandemError],
        policy: TruncationPolicy,
        deadline: Deadline,
    ) -> EncodedBatch:
        """Returns the encoding or the error of each content, as `DocumentScorer.embed` does."""
        return await self.router.sets[0].documents.embed(contents, policy, deadline)

    async def change(self, asked: ItemsChange, deadline: Deadline) -> Changes:
        """Changes stored items, as `Changer.change` does."""
        async with self.index_list.naming(asked.index_id):
            return await self.changer.change(asked, deadline)

    async def remove(self, asked: ItemsRemoval, deadline: Deadline) -> Removal:
        """Deletes items, as `Remover.remove` does."""
        return await self.remover.remove(asked, deadline)

    async def remove_index(self, index_id: str, deadline: Deadline) -> Removal:
        """Deletes an index, or a part of a large one, as `Remover.remove_index` does."""
        async with self.index_list.naming(index_id):
            only = await self.remover.only_generation(index_id, deadline)
            # Another index of the same name will have other null scores.
            await self._calibrations.forget(index_id, deadline)
            return await self.remover.remove_index(only, deadline)

    async def fetch_items(self, asked: ItemsQuery, deadline: Deadline) -> Mapping[str, FetchedItem]:
        """Returns the items that exist by id, as `StoredItems.fetch` does."""
        async with self.index_list.naming(asked.index_id):
            serving = (await self.router.route(asked.index_id, deadline)).index_id
            return await self.stored_items.fetch(replace(asked, index_id=serving), deadline)

    async def list_items(
        self, asked: ItemListing, deadline: Deadline
    ) -> tuple[Sequence[KeptItem], str]:
        """Returns a page of items without contents, as `StoredItems.listed` does."""
        async with self.index_list.naming(asked.index_id):
            serving = (await self.router.route(asked.index_id, deadline)).index_id
            return await self.stored_items.listed(replace(asked, index_id=serving), deadline)

    async def set_calibrations(
        self, index_id: str, measured: Sequence[ScoreCalibration], deadline: Deadline
    ) -> int:
        """Says what the scores of an index mean; returns how many calibrations it has."""
        await self.describe_index(index_id, deadline)
        return await self._calibrations.put(index_id, measured, deadline)

    async def describe_index(
        self, index_id: str, deadline: Deadline, *, full_coverage_required: bool = False
    ) -> IndexDescription:
        """Returns the state of an index, as `IndexSurvey.describe` does."""
        async with self.index_list.naming(index_id):
            serving = (await self.router.route(index_id, deadline)).index_id
            return await self.survey.describe(
                serving, deadline, full_coverage_required=full_coverage_required
            )

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the first encoder's model, with the rules of the first reranker that answers."""
        models = self.router.sets[0]
        model = await models.encoder.describe_model(deadline)
        try:
            cross_encoder = await models.searcher.depth_rules.describe(deadline)
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

    async def _found(
        self, asked: Mapping[int, SearchQuery], routes: Mapping[int, Route], deadline: Deadline
    ) -> dict[int, SearchResult | TandemError]:
        """Returns what each query found on its route; those of one model share calls."""
        numbers_of: dict[ModelSet, list[int]] = {}
        for number, route in routes.items():
            numbers_of.setdefault(route.models, []).append(number)
        answers = await fan_out(
            *(
                models.batch_searcher.search_each(
                    [routes[number].own(asked[number]) for number in numbers], deadline
                )
                for models, numbers in numbers_of.items()
            )
        )
        for route in routes.values():
            note_generation(route.record, route.index_id)
        pairs = zip(numbers_of.values(), answers, strict=True)
        return {n: each for numbers, own in pairs for n, each in zip(numbers, own, strict=True)}

    @property
    def _calibrations(self) -> Calibrations:
        return self.router.sets[0].searcher.services.calibrations

    async def _routed(
        self,
        query: Query,
        deadline: Deadline,
        call: Callable[[ModelSet, Query], Awaitable[Answer]],
        offer: Callable[[Route, Answer | TandemError], None] = lambda *_: None,
    ) -> Answer:
        """Calls the models of the query's generation; again, if it is another one's by now.

        `offer` gets the answer, or the error, of the generation.
        """
        route = await self.router.query_route(query, deadline)
        try:
            try:
                answer = await call(route.models, route.own(query))
            except (ModelMismatch, IndexNotFound) as error:
                route = await self.router.again(error, route, deadline)
                answer = await call(route.models, route.own(query))
        except TandemError as error:
            offer(route, error)
            raise
        note_generation(route.record, route.index_id)
        offer(route, answer)
        return answer
