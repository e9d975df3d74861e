"""Finds the nearest items: by pgvector's index, or exactly where a filter leaves few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import psycopg

from tandem.contract.content import Modality
from tandem.contract.search_path import (
    Fallback,
    KeywordState,
    SearchFallback,
    SearchPath,
    SearchStrategy,
)
from tandem.errors import IndexNotFound
from tandem.remote.pgvector.conditions import condition
from tandem.remote.pgvector.connections import Connection, vector_of
from tandem.remote.pgvector.tables import MODALITIES, Tables
from tandem.stages.index_info import IndexInfo
from tandem.stages.neighbours import ModalityNeighbours, ShardNeighbourQuery, ShardNeighbours
from tandem.stages.retrieval import Embeddings, ShardQuery
from tandem.stages.shard_answer import Found, KeywordFound, RowHit, ShardAnswer

INDEX_TYPE = "pgvector HNSW"
# Up to so many items that match a filter are compared one by one. Of more, the index finds 20 in
# the first 100,000 rows of its scan as long as there are at most 10 million items.
_FEW_COUNT = 2_000
_UNFILTERED = SearchPath(SearchStrategy.UNFILTERED, INDEX_TYPE)
_FILTERED = SearchPath(SearchStrategy.POST_FILTER, INDEX_TYPE)
_TOO_FEW = Fallback(SearchFallback.TOO_FEW_FOUND, "the index found too few that match")

_INDEX = """
SELECT fingerprint, dimension, text_count, image_count, (SELECT sequence FROM {shard})
FROM {indexes} WHERE id = %s {lock}
"""
# One statement sees one state.
_NEAREST = """
SELECT fingerprint, dimension, text_count, image_count, sequence, {few_count}, near.*
FROM {shard} CROSS JOIN {indexes} AS indexes LEFT JOIN LATERAL (
    SELECT query.place, item.id, item.distance, {embedding}
    FROM (VALUES {queries}) AS query (place, embedding) CROSS JOIN LATERAL (
        SELECT id, embedding, embedding <#> query.embedding AS distance FROM {source}
        ORDER BY embedding <#> query.embedding LIMIT {limit}) AS item
    ) AS near ON true
WHERE indexes.id = %(index_id)s ORDER BY near.place, near.distance, near.id
"""


@dataclass(frozen=True, slots=True)
class IndexRow(IndexInfo):
    """Holds an index's row, and where the change log stood when it was read."""

    text_count: int
    image_count: int
    sequence: int

    def item_count(self, modality: Modality) -> int:
        return self.text_count if modality is Modality.TEXT else self.image_count


async def index_row(
    index_id: str, tables: Tables, connection: Connection, *, lock: str = ""
) -> IndexRow:
    """Returns the index's row, under the lock if there is one; raises IndexNotFound."""
    found = await connection.execute(tables.of(_INDEX, lock=lock), [index_id])
    if (row := await found.fetchone()) is None:
        raise IndexNotFound(index_id=index_id)
    return IndexRow(*row)


async def searched(query: ShardQuery, tables: Tables, connection: Connection) -> ShardAnswer:
    """Returns what the index has for the query now; raises as `Shard.search`."""
    near = _Near(
        query.index_id,
        query.fingerprint,
        query.modality,
        query.embeddings,
        query.retrieve_k,
        embeddings_included=query.embeddings_included,
    )
    index, found = await _filtered(tables, connection, query, near)
    words = KeywordFound(KeywordState.DISABLED) if query.keywords else None
    return ShardAnswer(found, index.sequence, index.item_count(query.modality), words)


async def neighbours(
    query: ShardNeighbourQuery, tables: Tables, connection: Connection
) -> ShardNeighbours:
    """Returns the neighbours of both modalities; raises as `Shard.find_neighbours`."""
    found = {}
    for modality in Modality:
        near = _Near(
            query.index_id,
            query.fingerprint,
            modality,
            [query.query_D],
            query.pool_k,
            embeddings_included=True,
        )
        _, pool = await near.found(tables, connection)
        if len(query.nodes) > 1 and len(pool[0].hits) == query.pool_k:
            around = replace(near, embeddings=list(query.nodes[1:]), count=query.neighbour_k)
            pool += (await around.found(tables, connection))[1]
        rows = {
            hit.item_id: embedding
            for each in pool
            if each.embeddings is not None
            for hit, embedding in zip(each.hits, each.embeddings, strict=True)
        }
        pool_PD = np.stack([*rows.values()]) if rows else query.nodes[:0]
        found[modality] = ModalityNeighbours.within(query, pool_PD, np.arange(len(rows)))
    return found


async def _filtered(
    tables: Tables, connection: Connection, query: ShardQuery, near: _Near
) -> tuple[IndexRow, list[Found]]:
    if query.where is None:
        return await near.found(tables, connection)
    values: dict[str, object] = {}
    near = replace(near, matches=condition(query.where, values), values=values, path=_FILTERED)
    index, found = await replace(near, few_limit=str(_FEW_COUNT + 1)).found(tables, connection)
    if (found[0].path.matching_count or 0) <= _FEW_COUNT:
        return index, found
    index, found = await near.found(tables, connection)
    if all(len(each.hits) == near.count for each in found):
        return index, found
    index, found = await replace(near, few_limit="ALL").found(tables, connection)
    path = replace(found[0].path, strategy=SearchStrategy.EXACT_SCAN, fallback=_TOO_FEW)
    return index, [replace(each, path=path) for each in found]


@dataclass(frozen=True, slots=True)
class _Near:
    """Describes which items to find."""

    index_id: str
    fingerprint: str
    modality: Modality
    embeddings: Embeddings
    count: int
    """Of items near each embedding."""
    embeddings_included: bool = False
    matches: str = "true"
    values: dict[str, object] = field(default_factory=dict)
    """The parameters of `matches`."""
    few_limit: str = ""
    """Has those that match, up to so many, compared one by one."""
    path: SearchPath = _UNFILTERED

    async def found(self, tables: Tables, connection: Connection) -> tuple[IndexRow, list[Found]]:
        """Returns the nearest items to each embedding, best first, ties by smaller id.

        Raises IndexNotFound, ModelMismatch and EmbeddingInvalid.
        """
        source = f"{{items}} WHERE modality = {MODALITIES.index(self.modality)} AND {self.matches}"
        few = (
            f"WITH few AS MATERIALIZED (SELECT id, embedding FROM {source} LIMIT {self.few_limit})"
        )
        statement = tables.of(
            few + _NEAREST.replace("{source}", "few")
            if self.few_limit
            else _NEAREST.replace("{source}", source),
            self.index_id,
            few_count="(SELECT count(*) FROM few)" if self.few_limit else "NULL",
            queries=", ".join(f"({n}, %(q{n})s::vector)" for n in range(len(self.embeddings))),
            embedding="vector_send(item.embedding)" if self.embeddings_included else "NULL",
            limit=self.count,
        )
        values = {f"q{n}": each for n, each in enumerate(self.embeddings)} | self.values
        values["index_id"] = self.index_id
        try:
            rows = await (await connection.execute(statement, values, binary=True)).fetchall()
        except psycopg.errors.UndefinedTable:
            raise IndexNotFound(index_id=self.index_id) from None
        except psycopg.errors.DataException:  # Most likely of another dimension.
            index = await index_row(self.index_id, tables, connection)
            index.check(self.fingerprint, self.embeddings)
            raise
        if not rows:
            raise IndexNotFound(index_id=self.index_id)
        index, few_count = IndexRow(*rows[0][:5]), rows[0][5]
        index.check(self.fingerprint, self.embeddings)
        path = self.path
        if few_count is not None:
            path = SearchPath(SearchStrategy.PRE_FILTER, matching_count=few_count)
        own: list[list[tuple[Any, ...]]] = [[] for _ in self.embeddings]
        for *_, place, item_id, distance, embedding in rows:
            if place is not None:
                own[place].append((item_id, distance, embedding))
        return index, [self._found(each, path) for each in own]

    def _found(self, rows: Sequence[tuple[Any, ...]], path: SearchPath) -> Found:
        embeddings = None
        if self.embeddings_included:
            embeddings = np.zeros((len(rows), len(self.embeddings[0])), np.float32)
            for place, (*_, embedding) in enumerate(rows):
                embeddings[place] = vector_of(embedding)
        return Found([RowHit(each[0], -each[1]) for each in rows], path, embeddings)
