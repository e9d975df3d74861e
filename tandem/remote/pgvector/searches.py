"""Finds the nearest items: by pgvector's index, or exactly where a filter leaves few."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from psycopg import sql

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.search_path import (
    Fallback,
    KeywordState,
    SearchFallback,
    SearchPath,
    SearchStrategy,
)
from tandem.errors import EmbeddingInvalid, IndexNotFound, ModelMismatch, SequenceNotReached
from tandem.remote.pgvector.conditions import condition
from tandem.remote.pgvector.connections import Connection, vector_of
from tandem.remote.pgvector.tables import MODALITIES, Tables
from tandem.stages.neighbours import ModalityNeighbours, ShardNeighbourQuery, ShardNeighbours
from tandem.stages.retrieval import Embeddings, ShardQuery
from tandem.stages.shard_answer import Found, KeywordFound, RowHit, ShardAnswer

INDEX_TYPE = "pgvector HNSW"
# Up to so many items, or this part of all, those that match a filter are compared one by one.
_FEW_COUNT, _FEW_SHARE = 5_000, 0.02
_UNFILTERED = SearchPath(SearchStrategy.UNFILTERED, INDEX_TYPE)
_POLL_SECONDS = 0.01
# Time to report, before the deadline, that the sequence was not reached.
_ANSWER_SECONDS = 0.02

_INDEX = """
SELECT fingerprint, dimension, text_count, image_count, (SELECT sequence FROM {shard})
FROM {indexes} WHERE id = %s
"""
_MATCHING = """
SELECT count(*) FROM (
    SELECT FROM {items} WHERE modality = {modality} AND {matches} LIMIT {limit}) AS few
"""
# An added 0 is a distance that no index has. Equal distances are in the order of ids.
_NEAREST = """
SELECT query.place, near.id, near.distance, {embedding}
FROM (VALUES {queries}) AS query (place, embedding) CROSS JOIN LATERAL (
    SELECT id, embedding, embedding <#> query.embedding AS distance FROM {items}
    WHERE modality = {modality} AND {matches}
    ORDER BY (embedding <#> query.embedding) {added} LIMIT {limit}) AS near
ORDER BY query.place, near.distance, near.id
"""


@dataclass(frozen=True, slots=True)
class IndexRow:
    """Holds an index's row, and where the change log stood when it was read."""

    fingerprint: str
    dimension: int
    text_count: int
    image_count: int
    sequence: int

    def item_count(self, modality: Modality) -> int:
        return self.text_count if modality is Modality.TEXT else self.image_count

    def check(self, fingerprint: str, embeddings: Embeddings) -> None:
        """Raises ModelMismatch and EmbeddingInvalid."""
        if fingerprint != self.fingerprint:
            raise ModelMismatch(request=fingerprint, index=self.fingerprint)
        for each in embeddings:
            if len(each) != self.dimension:
                raise EmbeddingInvalid(
                    why=f"it has {len(each)} dimensions instead of {self.dimension}"
                )


async def index_row(tables: Tables, connection: Connection, index_id: str) -> IndexRow:
    """Returns the index's row; raises IndexNotFound."""
    found = await connection.execute(tables.of(_INDEX), [index_id])
    if (row := await found.fetchone()) is None:
        raise IndexNotFound(index_id=index_id)
    return IndexRow(*row)


async def searched(
    tables: Tables, connection: Connection, query: ShardQuery, deadline: Deadline
) -> ShardAnswer:
    """Returns what the index has for the query; raises what `Shard.search` raises."""
    index = await _reached(tables, connection, query, deadline)
    index.check(query.fingerprint, query.embeddings)
    near = _Near(
        query.index_id,
        query.modality,
        query.embeddings,
        query.retrieve_k,
        embeddings_included=query.embeddings_included,
    )
    item_count = index.item_count(query.modality)
    if query.where is None:
        found = await near.found(tables, connection)
    else:
        values: dict[str, object] = {}
        near = replace(near, matches=condition(query.where, values), values=values)
        found = await _filtered(tables, connection, near, item_count)
    keyword_found = KeywordFound(KeywordState.DISABLED) if query.keywords else None
    return ShardAnswer(found, index.sequence, item_count, keyword_found)


async def neighbours(
    tables: Tables, connection: Connection, query: ShardNeighbourQuery
) -> ShardNeighbours:
    """Returns the neighbours of both modalities; raises as `Shard.find_neighbours`."""
    index = await index_row(tables, connection, query.index_id)
    index.check(query.fingerprint, list(query.nodes))
    return {
        modality: await _neighbours(tables, connection, query, modality) for modality in Modality
    }


async def _reached(
    tables: Tables, connection: Connection, query: ShardQuery, deadline: Deadline
) -> IndexRow:
    """Waits until a search would see the query's sequence; raises SequenceNotReached."""
    while True:
        index = await index_row(tables, connection, query.index_id)
        if index.sequence >= query.minimum_sequence:
            return index
        if deadline.left() < _ANSWER_SECONDS + _POLL_SECONDS:
            raise SequenceNotReached(minimum=query.minimum_sequence, applied=index.sequence)
        await asyncio.sleep(_POLL_SECONDS)


async def _filtered(
    tables: Tables, connection: Connection, near: _Near, item_count: int
) -> Sequence[Found]:
    few_count = max(_FEW_COUNT, int(item_count * _FEW_SHARE))
    statement = tables.of(
        _MATCHING, near.index_id, **near.parts(), limit=sql.Literal(few_count + 1)
    )
    row = await (await connection.execute(statement, near.values)).fetchone()
    assert row is not None, "a count is one row"
    if row[0] <= few_count:
        path = SearchPath(SearchStrategy.PRE_FILTER, matching_count=row[0])
        return await replace(near, path=path, is_exact=True).found(tables, connection)
    path = SearchPath(SearchStrategy.POST_FILTER, INDEX_TYPE)
    found = await replace(near, path=path).found(tables, connection)
    if all(len(each.hits) == near.count for each in found):
        return found
    path = SearchPath(
        SearchStrategy.EXACT_SCAN,
        fallback=Fallback(SearchFallback.TOO_FEW_FOUND, "the index found too few that match"),
    )
    return await replace(near, path=path, is_exact=True).found(tables, connection)


async def _neighbours(
    tables: Tables, connection: Connection, query: ShardNeighbourQuery, modality: Modality
) -> ModalityNeighbours:
    near = _Near(query.index_id, modality, [query.query_D], query.pool_k, embeddings_included=True)
    pool = list(await near.found(tables, connection))
    if len(query.nodes) > 1 and len(pool[0].hits) == query.pool_k:
        around = replace(near, embeddings=list(query.nodes[1:]), count=query.neighbour_k)
        pool += await around.found(tables, connection)
    rows = {
        hit.item_id: embedding
        for each in pool
        if each.embeddings is not None
        for hit, embedding in zip(each.hits, each.embeddings, strict=True)
    }
    pool_PD = np.stack([*rows.values()]) if rows else query.nodes[:0]
    return ModalityNeighbours.within(query, pool_PD, np.arange(len(rows)))


@dataclass(frozen=True, slots=True)
class _Near:
    """Describes which items to find."""

    index_id: str
    modality: Modality
    embeddings: Embeddings
    count: int
    """Of items near each embedding."""
    embeddings_included: bool = False
    matches: str = "true"
    values: dict[str, object] = field(default_factory=dict)
    """The parameters of `matches`."""
    is_exact: bool = False
    path: SearchPath = _UNFILTERED

    def parts(self) -> dict[str, sql.Composable]:
        return {
            "modality": sql.Literal(MODALITIES.index(self.modality)),
            "matches": sql.SQL(self.matches),
        }

    async def found(self, tables: Tables, connection: Connection) -> Sequence[Found]:
        """Returns the nearest items to each embedding, best first, ties by smaller id."""
        queries = ", ".join(f"({n}, %(query_{n})s::vector)" for n in range(len(self.embeddings)))
        statement = tables.of(
            _NEAREST,
            self.index_id,
            **self.parts(),
            queries=sql.SQL(queries),
            embedding=sql.SQL(
                "vector_send(near.embedding)" if self.embeddings_included else "NULL"
            ),
            added=sql.SQL("+ 0" if self.is_exact else ""),
            limit=sql.Literal(self.count),
        )
        values = {f"query_{n}": each for n, each in enumerate(self.embeddings)} | self.values
        rows = await (await connection.execute(statement, values, binary=True)).fetchall()
        found: list[list[tuple[Any, ...]]] = [[] for _ in self.embeddings]
        for row in rows:
            found[row[0]].append(row[1:])
        return [self._found(each) for each in found]

    def _found(self, rows: Sequence[tuple[Any, ...]]) -> Found:
        hits = [RowHit(item_id, -distance) for item_id, distance, _ in rows]
        if not self.embeddings_included:
            return Found(hits, self.path)
        none = np.zeros((0, len(self.embeddings[0])), np.float32)
        return Found(
            hits, self.path, np.stack([vector_of(row[2]) for row in rows]) if rows else none
        )
