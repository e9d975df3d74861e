"""Orchestrators of two models over shards of this process, and promotions as a keeper's."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tandem.contract.content import Content, Encoding, Modality, TextContent, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.answer import IngestOutcome, SearchResult
from tandem.contract.search.ingest import IncomingItem, IngestBatch
from tandem.contract.search.query import Depth, SearchQuery, WeightedPart
from tandem.errors import IndexNotFound
from tandem.search.assembly import guarded_stages, make_orchestrator
from tandem.search.indexes.alias_book import AliasBook
from tandem.search.orchestrator import Orchestrator
from tandem.search.settings import SearchSettings
from tandem.stages.aliases import AliasRecord, Generation
from tandem.stages.encoding import EncodedBatch, EncodePurpose, Encoder
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord, ItemsQuery
from tandem.stages.notes import SetWriter
from tests.support.item_store.made_items import text_item, unit_vector
from tests.support.orchestrator_svc.downstream import DESCRIPTION
from tests.support.orchestrator_svc.local_shards import local_shards

MODELS = {"photos": "model-a", "photos@2": "model-b"}


def in_time() -> Deadline:
    return Deadline.after(10.0)


class SeededEncoder(Encoder):
    """Encodes texts as a model of that fingerprint, unlike any other."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns an embedding for each text."""
        return EncodedBatch([self.encoding(each) for each in contents], self.fingerprint)

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the fingerprint's description."""
        return self.describe()

    def describe(self) -> ModelDescription:
        """Returns the same at once."""
        return replace(DESCRIPTION, fingerprint=self.fingerprint)

    def encoding(self, content: Content) -> Encoding:
        """Returns the embedding of a text."""
        assert isinstance(content, TextContent)
        seed = zlib.crc32(f"{self.fingerprint}/{content.text}".encode())
        return replace(text_item("", 1).encoding, embedding=unit_vector(seed))


def orchestrator_over(shards: Sequence[Any], *fingerprints: str) -> Orchestrator:
    """Returns an orchestrator with an encoder of each model, whose rerankers nothing asks."""
    settings = SearchSettings(ingest_batch_timeout_seconds=10.0)
    unasked: list[Any] = [None] * len(shards)
    first, *others = map(SeededEncoder, fingerprints)
    stages = guarded_stages(settings, first, shards, unasked)
    beside = [guarded_stages(settings, each, (), unasked, stages) for each in others]
    return make_orchestrator(settings, stages, next_stages=beside[0] if beside else None)


@asynccontextmanager
async def two_generations(folder: Path) -> AsyncIterator[tuple[Sequence[Any], Orchestrator]]:
    """Yields two shards with the alias photos, whose first of two generations serves."""
    async with local_shards(folder) as shards:
        orchestrator = orchestrator_over(shards, "model-a", "model-b")
        await make_generations(shards, orchestrator.router.book)
        yield shards, orchestrator
        await orchestrator.router.book.close()


async def make_generations(shards: Sequence[Any], book: AliasBook) -> None:
    """Has the first of two generations serve."""
    await book.begin(in_time())
    for shard in shards:
        await shard.write(SetWriter("photos@2", 1, is_open=False), in_time())
    generations = tuple(Generation(*each) for each in MODELS.items())
    await book.put(AliasRecord("photos", "photos", generations, next_number=3), in_time())


async def begin_promotion(shards: Sequence[Any], serving: str, term: int) -> None:
    """Closes the serving generation."""
    for shard in shards:
        await shard.write(SetWriter(serving, term, is_open=False), in_time())


async def end_promotion(shards: Sequence[Any], book: AliasBook, serving: str, term: int) -> None:
    """Brings the other generation's items to the state of this one, and has that one serve."""
    other = next(each for each in MODELS if each != serving)
    for shard in shards:
        await _follow(shard, serving, other, term)
    await book.refresh(in_time())
    record = book.record("photos")
    assert record.serving == serving
    await book.put(replace(record, serving=other, previous=serving), in_time())
    for shard in shards:
        await shard.write(SetWriter(other, term, is_open=True), in_time())


async def _follow(shard: Any, serving: str, other: str, term: int) -> None:
    encoder = SeededEncoder(MODELS[other])
    ids = await stored_ids(shard, serving)
    if gone := set(await stored_ids(shard, other)) - set(ids):
        await shard.write(Delete(other, sorted(gone), term=term), in_time())
    if ids:
        query = ItemsQuery(serving, ids, content_included=True)
        fetched = (await shard.get(query, in_time())).items
        items = [
            ItemRecord(item_id, each.content, encoder.encoding(each.content), each.attributes)
            for item_id, each in fetched.items()
        ]
        await shard.write(Upsert(other, encoder.fingerprint, items, term=term), in_time())


async def stored_ids(shard: Any, index_id: str) -> list[str]:
    """Returns the ids that the shard has of the index."""
    try:
        return list(await shard.list_item_ids(index_id, "", 1_000, in_time()))
    except IndexNotFound:
        return []


def query_of(
    text: str = "a cat", index_id: str = "photos", return_n: int = 50, tokens: Sequence[str] = ()
) -> SearchQuery:
    """Returns a query for texts in bi-encoder order."""
    return SearchQuery(
        parts=[WeightedPart(TextContent(text))],
        index_id=index_id,
        target_modality=Modality.TEXT,
        depth=Depth(50, 0, return_n),
        rerank_disabled=True,
        consistency_tokens=tuple(tokens),
    )


def ids_of(answer: SearchResult) -> set[str]:
    """Returns the ids that were found."""
    return {each.item_id for each in answer.items}


async def ingest(
    orchestrator: Orchestrator, *item_ids: str, index_id: str = "photos", request_id: str = ""
) -> list[IngestOutcome]:
    """Stores a text under each id, in one batch."""
    items = [IncomingItem(each, TextContent(each), {}) for each in item_ids]

    async def batches() -> AsyncIterator[IngestBatch]:
        yield IngestBatch(index_id, items, request_id, TruncationPolicy.ERROR)

    [outcomes] = [each async for each in orchestrator.ingest_stream.answers(batches())]
    return outcomes
