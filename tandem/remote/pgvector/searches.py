"""Finds the nearest items: by pgvector's index, or exactly where a filter leaves few."""

from collections.abc import Sequence

import numpy as np
import psycopg

from tandem.contract.search_path import (
    Fallback,
    KeywordState,
    SearchFallback,
    SearchPath,
    SearchStrategy,
)
from tandem.errors import IndexNotFound
from tandem.remote.pgvector.conditions import condition
from tandem.remote.pgvector.connections import Row, Session, vector_of
from tandem.remote.pgvector.tables import MODALITIES, IndexRow, index_row
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import Found, KeywordFound, RowHit, ShardAnswer

INDEX_TYPE = "pgvector HNSW"
# Up to so many items that match a filter are compared one by one. Of more, the index finds 20 in
# the first 100,000 rows of its scan as long as there are at most 10 million items.
_FEW_COUNT = 2_000
_UNFILTERED = SearchPath(SearchStrategy.UNFILTERED, INDEX_TYPE)
_FILTERED = SearchPath(SearchStrategy.POST_FILTER, INDEX_TYPE)
_TOO_FEW = Fallback(SearchFallback.TOO_FEW_FOUND, "the index found too few that match")

# One statement sees one state.
_NEAREST = """
SELECT fingerprint, dimension, text_count, image_count, sequence, <count>, near.*
FROM {shard} CROSS JOIN {indexes} AS indexes LEFT JOIN LATERAL (
    SELECT query.place, item.id, item.distance, <embedding>
    FROM (VALUES {queries}) AS query (place, embedding) CROSS JOIN LATERAL (
        SELECT id, embedding, (embedding {operator} query.embedding) - {at_same} AS distance
        FROM <source> ORDER BY embedding {operator} query.embedding LIMIT {limit}) AS item
    WHERE item.distance < 'infinity' AND octet_length(item.id) BETWEEN 1 AND 256) AS near ON true
WHERE indexes.id = %(index_id)s ORDER BY near.place, near.distance, near.id
"""
_UNIT = "vector_send({unit}(item.embedding))"
_MATCHING = "{items} WHERE modality = {modality} AND {matches}"
_BY_INDEX = _NEAREST.replace("<source>", _MATCHING).replace("<count>", "NULL")
_ONE_BY_ONE = (
    f"WITH matching AS MATERIALIZED (SELECT id, embedding FROM {_MATCHING} LIMIT {{few}})"
    + _NEAREST.replace("<source>", "matching").replace("<count>", "(SELECT count(*) FROM matching)")
)


async def searched(query: ShardQuery, session: Session) -> ShardAnswer:
    """Returns what the index has for the query now; raises as `Shard.search`."""
    if query.where is None:
        index, _, rows = await _nearest(query, session, _BY_INDEX)
        path = _UNFILTERED
    else:
        index, path, rows = await _filtered(query, session)
    return ShardAnswer(
        [_found(query, place, rows, path) for place in range(len(query.embeddings))],
        index.sequence,
        index.counts[query.modality],
        KeywordFound(KeywordState.DISABLED) if query.keywords else None,
    )


async def _filtered(
    query: ShardQuery, session: Session
) -> tuple[IndexRow, SearchPath, Sequence[Row]]:
    index, count, rows = await _nearest(query, session, _ONE_BY_ONE, few=_FEW_COUNT + 1)
    if count <= _FEW_COUNT:
        return index, SearchPath(SearchStrategy.PRE_FILTER, matching_count=count), rows
    index, _, rows = await _nearest(query, session, _BY_INDEX)
    if len(rows) == query.retrieve_k * len(query.embeddings):
        return index, _FILTERED, rows
    index, count, rows = await _nearest(query, session, _ONE_BY_ONE, few="ALL")
    path = SearchPath(SearchStrategy.EXACT_SCAN, matching_count=count, fallback=_TOO_FEW)
    return index, path, rows


async def _nearest(
    query: ShardQuery, session: Session, statement: str, **parts: object
) -> tuple[IndexRow, int, Sequence[Row]]:
    """Returns the index, how many items match, and place, id, distance and embedding of items.

    They are those nearest to each of the query's embeddings, best first, ties by smaller id.
    Raises IndexNotFound, ModelMismatch and EmbeddingInvalid.
    """
    values: dict[str, object] = {"index_id": query.index_id}
    values |= {f"q{place}": each for place, each in enumerate(query.embeddings)}
    places = range(len(query.embeddings))
    try:
        rows = await session.rows(
            statement.replace("<embedding>", _UNIT if query.embeddings_included else "NULL"),
            values,
            query.index_id,
            is_prepared=query.where is None,
            matches="true" if query.where is None else condition(query.where, values),
            modality=MODALITIES.index(query.modality),
            queries=", ".join(f"({place}, %(q{place})s::vector)" for place in places),
            limit=query.retrieve_k,
            **parts,
        )
    except (psycopg.errors.UndefinedTable, psycopg.errors.DataException):
        # There is no such index, or it is of another dimension.
        index = await index_row(query.index_id, session)
        index.check(query.fingerprint, query.embeddings)
        raise
    if not rows:
        raise IndexNotFound(index_id=query.index_id)
    index = IndexRow(*rows[0][:5])
    index.check(query.fingerprint, query.embeddings)
    return index, rows[0][5], [row[6:] for row in rows if row[6] is not None]


def _found(query: ShardQuery, place: int, rows: Sequence[Row], path: SearchPath) -> Found:
    own = [row for row in rows if row[0] == place]
    embeddings = None
    if query.embeddings_included:
        vectors = [vector_of(row[3]) for row in own]
        embeddings = np.array(vectors, np.float32).reshape(-1, len(query.embeddings[place]))
    return Found([RowHit(row[1], -row[2]) for row in own], path, embeddings)
