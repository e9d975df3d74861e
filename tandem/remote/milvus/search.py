"""Searches a collection for the nearest items, as exactly as a filter allows.

A filter on typed fields goes to Milvus; where it leaves few rows, all of them are compared here.
The rest of a filter is evaluated on what was found, among ever more of the nearest items.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem.contract.deadline import Deadline
from tandem.contract.filtering.filters import holds
from tandem.contract.identifiers import MAX_ITEM_ID_BYTES
from tandem.contract.search_path import (
    NO_FALLBACK,
    Fallback,
    SearchFallback,
    SearchPath,
    SearchStrategy,
)
from tandem.remote.milvus.collections import (
    INDEX_TYPE,
    IndexCollection,
    Row,
    attributes_of,
    of_modality,
)
from tandem.remote.milvus.connection import as_of
from tandem.remote.milvus.typed_fields import pushed_down
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import Found, RowHit

# Milvus walks the graph through rows that the filter leaves out, so it must look at more. Of
# 100,000 made vectors it then finds 95 % of the nearest 20 where 12 % match, and 77 % with 256.
_EFFORT, _FILTERED_EFFORT = 256, 1_024

_EXACT_COUNT = 1_000
"""Of matching rows that are read and compared here, in about 40 ms. Milvus compares those of a new
segment by a coarse index of its own: of 1 % it found 65 % of the nearest 20."""

_WINDOWS = (256, 2_048, 16_384)
"""The nearest items among which the rest of a filter is evaluated; Milvus returns no more."""

_Near: TypeAlias = tuple[float, Row]
"""A similarity and the row that has it."""


class CollectionSearch:
    """Searches one collection for one query."""

    def __init__(self, collection: IndexCollection, query: ShardQuery, deadline: Deadline) -> None:
        self._collection = collection
        self._query = query
        self._deadline = deadline
        self._seen = as_of(query.minimum_sequence)
        self._pushed, self._rest = pushed_down(query.where, collection.fields)
        self._where = of_modality(query.modality)
        if self._pushed:
            self._where += f" and ({self._pushed})"
        self._fields = ["embedding"] * query.embeddings_included
        self._fields += ["attributes"] * (self._rest is not None)

    async def found(self) -> list[Found]:
        """Returns the nearest items to each of the query's embeddings."""
        count = None
        if self._pushed:
            count = await self._collection.count(self._where, self._deadline, self._seen)
            if count <= _EXACT_COUNT:
                return await self._compared()
        if self._rest is not None:
            return await self._post_filtered()
        strategy = SearchStrategy.PRE_FILTER if self._pushed else SearchStrategy.UNFILTERED
        path = SearchPath(strategy, INDEX_TYPE, matching_count=count)
        return [self._best(near, path) for near in await self._nearest(self._query.retrieve_k)]

    async def _compared(self) -> list[Found]:
        """Compares every row that matches what Milvus evaluates."""
        fields = [*{"embedding", *self._fields}]
        rows = await self._collection.query(
            self._where, fields, self._deadline, self._seen, _EXACT_COUNT
        )
        rows = [row for row in rows if self._matches(row)]
        path = SearchPath(SearchStrategy.EXACT_SCAN, matching_count=len(rows))
        rows_ND = self._embeddings(rows)
        return [
            self._best(zip((rows_ND @ query_D).tolist(), rows, strict=True), path)
            for query_D in self._query.embeddings
        ]

    async def _post_filtered(self) -> list[Found]:
        """Evaluates the rest of the filter among more and more of the nearest items."""
        wanted = self._query.retrieve_k
        # Embeddings of the last window would be 25 MB.
        windows = _WINDOWS[:2] if self._query.embeddings_included else _WINDOWS
        for window in (max(each, wanted) for each in windows):
            near = await self._nearest(window)
            kept = [[each for each in of_one if self._matches(each[1])] for of_one in near]
            if all(
                len(few) >= wanted or len(of_one) < window
                for few, of_one in zip(kept, near, strict=True)
            ):
                fallback = NO_FALLBACK
                break
        else:
            fallback = Fallback(
                SearchFallback.TOO_FEW_FOUND,
                f"fewer than {wanted:,} of the nearest {windows[-1]:,} items match; have the "
                "operator declare the filter's attributes as fields",
            )
        path = SearchPath(SearchStrategy.POST_FILTER, INDEX_TYPE, fallback=fallback)
        return [self._best(near, path) for near in kept]

    async def _nearest(self, count: int) -> list[list[_Near]]:
        effort = _FILTERED_EFFORT if self._pushed else _EFFORT
        found = await self._collection.connection.call(
            "search",
            self._collection.name,
            data=list(self._query.embeddings),
            anns_field=self._collection.columns("embedding")[0],
            limit=count,
            filter=self._collection.own_condition(self._where),
            output_fields=[
                column for each in self._fields for column in self._collection.columns(each)
            ],
            search_params={"params": {"ef": max(effort, count)}},
            deadline=self._deadline,
            **self._seen,
        )
        near: list[list[_Near]] = []
        for hits, query_D in zip(found, self._query.embeddings, strict=True):
            rows = [self._collection.row({**hit["entity"], "item_id": hit["id"]}) for hit in hits]
            similarities = [float(hit["distance"]) for hit in hits]
            if self._query.embeddings_included:
                # Milvus may read them after it compared: of an item that was replaced meanwhile.
                similarities = (self._embeddings(rows) @ query_D).tolist()
            # Another program's vectors may have the length 0, and its ids any.
            near.append(
                [
                    (similarity, row)
                    for similarity, row in zip(similarities, rows, strict=True)
                    if math.isfinite(similarity)
                    and 0 < len(row["item_id"].encode()) <= MAX_ITEM_ID_BYTES
                ]
            )
        return near

    def _matches(self, row: Row) -> bool:
        return self._rest is None or holds(self._rest, attributes_of(row))

    def _best(self, near: Iterable[_Near], path: SearchPath) -> Found:
        best = sorted(near, key=lambda each: (-each[0], each[1]["item_id"]))
        best = best[: self._query.retrieve_k]
        is_asked = self._query.embeddings_included
        embeddings = self._embeddings([row for _, row in best]) if is_asked else None
        return Found([RowHit(row["item_id"], each) for each, row in best], path, embeddings)

    def _embeddings(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        embeddings_ND = np.asarray([row["embedding"] for row in rows], np.float32)
        return embeddings_ND.reshape(len(rows), self._collection.dimension)
