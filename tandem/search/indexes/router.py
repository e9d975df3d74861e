"""Says which generation of an index answers a call, and by which models."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from tandem.contract.deadline import Deadline
from tandem.contract.generation_ids import alias_of, named_generation
from tandem.contract.identifiers import check_index_id
from tandem.contract.search.documents import DocumentQuery
from tandem.contract.search.query import SearchQuery
from tandem.errors import (
    CursorInvalid,
    IndexIdInvalid,
    IndexNotFound,
    ModelMismatch,
    TandemError,
    WriterRefused,
    error_from_reason,
)
from tandem.search.batch_search import BatchSearcher
from tandem.search.calls.fan_out import fan_out
from tandem.search.contents.documents import DocumentScorer
from tandem.search.indexes.alias_book import AliasBook
from tandem.search.search import Searcher
from tandem.search.writes.consistency_token import switch_count_of
from tandem.stages.aliases import AliasRecord
from tandem.stages.encoding import Encoder

Query = TypeVar("Query", SearchQuery, DocumentQuery)

_ASK_SECONDS = 1.0
# Shorter than a fence by far, and shard 0 is read each time.
_RETRY_SECONDS = 0.02


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ModelSet:
    """Answers by one model: its encoder, and the rerankers of all shards."""

    encoder: Encoder
    searcher: Searcher
    batch_searcher: BatchSearcher
    documents: DocumentScorer


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Names the one generation that a call is about, from its beginning to its end."""

    asked: str
    """What the caller named: an alias, or a generation."""
    index_id: str
    record: AliasRecord
    models: ModelSet

    def own(self, query: Query) -> Query:
        """Returns the query of the generation."""
        return query if query.index_id == self.index_id else replace(query, index_id=self.index_id)


def check_alias(index_id: str) -> str:
    """Returns `index_id`, which a write names; raises IndexIdInvalid, also for a generation."""
    if (alias := alias_of(check_index_id(index_id))) != index_id:
        raise IndexIdInvalid(index_id=index_id, remedy=f"it names a generation; write to {alias!r}")
    return index_id


class Router:
    """Finds the generation that serves an alias, and the models of its fingerprint."""

    def __init__(self, book: AliasBook, sets: Sequence[ModelSet]) -> None:
        """Takes sets over the same shards; an index whose model is unknown has the first one's."""
        self.book = book
        self.sets = sets
        self._fingerprints = dict.fromkeys(sets, "")
        """Of the sets' models, as they last described themselves."""
        self._ask_time = 0.0
        """When they may be asked again."""
        self._asking = asyncio.Lock()
        self._learned: dict[str, str] = {}
        """The fingerprints of indexes that turned out to be of another model than was known."""

    async def route(self, index_id: str, deadline: Deadline, switch_count: int = 0) -> Route:
        """Returns what serves the alias now, or the generation of that name.

        Reads the aliases again if fewer switches than `switch_count` are known. Raises
        IndexIdInvalid, ModelMismatch for a model that no set has, and the book's errors.
        """
        alias = alias_of(check_index_id(index_id))
        record = await self._record(alias, deadline)
        if record.switch_count < switch_count:
            await self.book.refresh(deadline)
            record = self.book.record(alias)
        chosen = record.serving if index_id == alias else named_generation(index_id)
        fingerprint = self._learned.get(chosen) or record.fingerprint_of(chosen)
        models = self.sets[0]
        if fingerprint:
            models = self._set_of(fingerprint) or await self._found(fingerprint, chosen, deadline)
        return Route(index_id, chosen, record, models)

    async def query_route(self, query: SearchQuery | DocumentQuery, deadline: Deadline) -> Route:
        """Returns the route of a query, which sees the writes of its consistency tokens."""
        tokens = query.consistency_tokens if isinstance(query, SearchQuery) else ()
        count = switch_count_of(tokens, alias_of(query.index_id)) if tokens else 0
        return await self.route(query.index_id, deadline, count)

    async def again(self, error: TandemError, route: Route, deadline: Deadline) -> Route:
        """Returns where a call goes that was refused there; raises its error if nowhere else.

        A write that was refused because another generation serves now waits a moment for that. The
        generation of an index that is not found may have been dropped.
        """
        if isinstance(error, WriterRefused) and deadline.left() > 2 * _RETRY_SECONDS:
            await asyncio.sleep(_RETRY_SECONDS)
            with suppress(TandemError):
                await self.book.refresh(deadline)
            return await self.route(route.asked, deadline)
        if isinstance(error, IndexNotFound):
            with suppress(TandemError):
                await self.book.refresh(deadline)
            fresh = await self.route(route.asked, deadline)
            if fresh.index_id != route.index_id:
                return fresh
        if isinstance(error, ModelMismatch) and len(self.sets) > 1:
            await self._ask(deadline)
            told = error.metadata.values()
            for models, fingerprint in self._fingerprints.items():
                if models is not route.models and fingerprint in told:
                    self._learned[route.index_id] = fingerprint
                    return replace(route, models=models)
        raise error

    async def check_kept(self, index_id: str, deadline: Deadline) -> None:
        """Raises CursorInvalid for a generation that was dropped."""
        record = await self._record(alias_of(index_id), deadline)
        if record.revision and not record.has(index_id):
            with suppress(TandemError):
                await self.book.refresh(deadline)
            if not self.book.record(record.alias).has(index_id):
                raise CursorInvalid(why=f"its generation {index_id} was dropped")

    async def _record(self, alias: str, deadline: Deadline) -> AliasRecord:
        if not self.book.has_begun:
            await self.book.begin(deadline)
        return self.book.record(alias)

    def _set_of(self, fingerprint: str) -> ModelSet | None:
        found = (models for models, known in self._fingerprints.items() if known == fingerprint)
        return next(found, None)

    async def _found(self, fingerprint: str, index_id: str, deadline: Deadline) -> ModelSet:
        """Returns the set of the model, or one that does not say which it has; else raises."""
        await self._ask(deadline)
        if found := self._set_of(fingerprint) or self._set_of(""):
            return found
        there_are = " and ".join(self._fingerprints.values())
        raise error_from_reason(
            ModelMismatch.reason,
            f"index {index_id} is of model {fingerprint}, and the encoders here are of "
            f"{there_are}: start one of it, and name it in ORCHESTRATOR_NEXT_ENCODER_ADDRESS",
            {"request_fingerprint": there_are, "index_fingerprint": fingerprint},
        )

    async def _ask(self, deadline: Deadline) -> None:
        """Has the sets describe their models, at most once a second; keeps what is known."""

        async def ask(models: ModelSet) -> None:
            with suppress(TandemError):
                described = await models.encoder.describe_model(in_time)
                self._fingerprints[models] = described.fingerprint

        async with self._asking:
            if time.monotonic() < self._ask_time:
                return
            in_time = min(deadline, Deadline.after(_ASK_SECONDS))
            await fan_out(*map(ask, self.sets))
            self._ask_time = time.monotonic() + _ASK_SECONDS
