"""Searches a collection for the nearest items, as exactly as a filter allows.

A filter on typed fields goes to Milvus; where it leaves few rows, all of them are compared here.
The rest of a filter is evaluated on what was found, among ever more of the nearest items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.filters import Filter, holds
from tandem.contract.search_path import (
    NO_FALLBACK,
    Fallback,
    SearchFallback,
    SearchPath,
    SearchStrategy,
)
from tandem.remote.milvus.collections import INDEX_TYPE, IndexCollection
from tandem.remote.milvus.connection import MilvusConnection, as_of
from tandem.remote.milvus.expressions import pushed_down
from tandem.remote.milvus.rows import MODALITY_NUMBERS, attributes_of
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


@dataclass(frozen=True, slots=True)
class _Near:
    """One row that was found."""

    item_id: str
    similarity: float
    fields: Mapping[str, Any]


class CollectionSearch:
    """Searches one collection for one query."""

    def __init__(
        self,
        connection: MilvusConnection,
        collection: IndexCollection,
        query: ShardQuery,
        deadline: Deadline,
    ) -> None:
        self._connection = connection
        self._name = collection.name
        self._query = query
        self._deadline = deadline
        self._seen = as_of(query.minimum_sequence)
        fields = {each.name: each for each in collection.fields}
        self._pushed, self._rest = pushed_down(query.where, fields)
        self._where = of_modality(query.modality)
        if self._pushed:
            self._where += f" and ({self._pushed})"
        self._fields = [
            *(["embedding"] if query.embeddings_included else []),
            *(["attributes"] if self._rest is not None else []),
        ]

    async def found(self) -> list[Found]:
        """Returns the nearest items to each of the query's embeddings."""
        count = None
        if self._pushed:
            count = await self._connection.count(
                self._name, self._where, self._deadline, self._seen
            )
            if count <= _EXACT_COUNT:
                return await self._compared()
        if self._rest is not None:
            return await self._post_filtered()
        strategy = SearchStrategy.PRE_FILTER if self._pushed else SearchStrategy.UNFILTERED
        path = SearchPath(strategy, INDEX_TYPE, matching_count=count)
        return [self._best(rows, path) for rows in await self._nearest(self._query.retrieve_k)]

    async def _compared(self) -> list[Found]:
        """Compares every row that matches what Milvus evaluates."""
        found = await self._connection.call(
            "query",
            self._name,
            filter=self._where,
            output_fields=[*{"embedding", *self._fields}],
            limit=_EXACT_COUNT,
            deadline=self._deadline,
            **self._seen,
        )
        rows = [row for row in found if _matches(row, self._rest)]
        rows_ND = np.asarray([row["embedding"] for row in rows], np.float32)
        path = SearchPath(SearchStrategy.EXACT_SCAN, matching_count=len(rows))
        return [
            self._best(
                (
                    _Near(row["item_id"], similarity, row)
                    for row, similarity in zip(
                        rows, (rows_ND @ query_D).tolist() if rows else [], strict=True
                    )
                ),
                path,
            )
            for query_D in self._query.embeddings
        ]

    async def _post_filtered(self) -> list[Found]:
        """Evaluates the rest of the filter among more and more of the nearest items."""
        wanted = self._query.retrieve_k
        # Embeddings of the last window would be 25 MB.
        windows = _WINDOWS[:2] if self._query.embeddings_included else _WINDOWS
        for window in (max(each, wanted) for each in windows):
            near = await self._nearest(window)
            kept = [[row for row in rows if _matches(row.fields, self._rest)] for rows in near]
            if all(
                len(rows) >= wanted or len(all_rows) < window
                for rows, all_rows in zip(kept, near, strict=True)
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
        return [self._best(rows, path) for rows in kept]

    async def _nearest(self, count: int) -> list[list[_Near]]:
        effort = _FILTERED_EFFORT if self._pushed else _EFFORT
        found = await self._connection.call(
            "search",
            self._name,
            data=list(self._query.embeddings),
            anns_field="embedding",
            limit=count,
            filter=self._where,
            output_fields=self._fields,
            search_params={"params": {"ef": max(effort, count)}},
            deadline=self._deadline,
            **self._seen,
        )
        return [
            [_Near(hit["id"], self._similarity(hit, query_D), hit["entity"]) for hit in hits]
            for hits, query_D in zip(found, self._query.embeddings, strict=True)
        ]

    def _similarity(self, hit: Mapping[str, Any], query_D: NDArray[np.float32]) -> float:
        if not self._query.embeddings_included:
            return float(hit["distance"])
        # Milvus may read the embedding after it compared: of an item that was replaced meanwhile.
        return float(np.asarray(hit["entity"]["embedding"], np.float32) @ query_D)

    def _best(self, rows: Iterable[_Near], path: SearchPath) -> Found:
        best = sorted(rows, key=lambda row: (-row.similarity, row.item_id))
        best = best[: self._query.retrieve_k]
        embeddings = None
        if self._query.embeddings_included:
            embeddings = np.asarray([row.fields["embedding"] for row in best], np.float32)
            embeddings = embeddings.reshape(len(best), len(self._query.embeddings[0]))
        return Found([RowHit(row.item_id, row.similarity) for row in best], path, embeddings)


def of_modality(modality: Modality) -> str:
    """Returns the expression of the rows of a modality."""
    return f"modality == {MODALITY_NUMBERS[modality]}"


def _matches(row: Mapping[str, Any], rest: Filter | None) -> bool:
    return rest is None or holds(rest, attributes_of(row))
