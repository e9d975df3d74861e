"""Holds the texts or the images of one index: their embeddings, attributes and FAISS index."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np

from tandem.contract.filtering.attributes import Attributes
from tandem.contract.filtering.filters import Filter
from tandem.contract.search_path import (
    NO_FALLBACK,
    Fallback,
    SearchFallback,
    SearchPath,
    SearchStrategy,
)
from tandem.local.item_store.item_store import StoredEmbedding
from tandem.local.shard.attributes.attribute_columns import AttributeColumns
from tandem.local.shard.retrieval.arrays import F32, I64, Mask
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.exact_scan import (
    compare_rows,
    near_rows,
    ordered_hits,
    ranked_hits,
    scan_rows,
)
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.index_type import FLAT, fetch_count
from tandem.local.shard.retrieval.search_plan import choose_strategy
from tandem.stages.shard_answer import Found, RowHit

# A filter that matches one item in n makes FAISS search up to so many times more of the index.
_MAX_EFFORT = 16.0
# A repeated filter costs nothing until an item changes. A mask of a million rows is 1 MB.
_KEPT_FILTER_COUNT = 16


class ModalityIndex:
    """Searches rows, of which a FAISS index, if there is one, has the first.

    FAISS's candidates are compared exactly, so a similarity never depends on the index type. Rows
    that FAISS does not have yet are compared one by one, so that a new item is found at once. Not
    safe to change while it is searched.
    """

    def __init__(self, rows: EmbeddingRows, faiss_index: FaissIndex | None = None) -> None:
        """Takes over rows, and a FAISS index of the first of them."""
        self.rows = rows
        self.faiss_index = faiss_index
        self.fallback = NO_FALLBACK
        """Why there is no FAISS index, or not the requested one."""
        self.recall_percent: float | None = None
        """Of the FAISS index, as measured when it was built."""
        self.attributes: dict[int, Attributes] = {}
        """By row, where there are any."""
        self.change_count = 0
        """Changes of items since this object was created."""
        self._columns = AttributeColumns()
        # Of these two alone, so that no cycle keeps a replaced index until a garbage collection.
        self._matches = lru_cache(_KEPT_FILTER_COUNT)(partial(_matches, self._columns, rows))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def index_type(self) -> str:
        """Returns the type of the FAISS index; "Flat" without one."""
        return FLAT if self.faiss_index is None else self.faiss_index.index_type

    @property
    def tail_count(self) -> int:
        """Returns how many rows the FAISS index does not have yet; 0 without one."""
        return 0 if self.faiss_index is None else self.rows.row_count - self.faiss_index.row_count

    def upsert(self, items: Sequence[StoredEmbedding]) -> None:
        item_ids = [item.item_id for item in items]
        self.delete(item_ids)
        embeddings_ND = np.stack([item.embedding for item in items])
        for row, item in zip(self.rows.append(item_ids, embeddings_ND), items, strict=True):
            self.put_attributes(row, item.attributes)
        self.change_count += len(items)
        self._matches.cache_clear()

    def put_attributes(self, row: int, attributes: Attributes) -> None:
        self.attributes.pop(row, None)
        if attributes:
            self.attributes[row] = attributes
        self._columns.put(row, attributes)

    def replace_attributes(self, attributes_of: Mapping[str, Attributes]) -> None:
        """Replaces the attributes of items by their ids, ignoring missing ones."""
        for item_id, attributes in attributes_of.items():
            if (row := self.rows.ids.row_of(item_id)) is not None:
                self.put_attributes(row, attributes)
                self.change_count += 1
        self._matches.cache_clear()

    def delete(self, item_ids: Sequence[str]) -> None:
        for row in (rows := self.rows.kill(item_ids)):
            if self.attributes.pop(row, None) is not None:
                self._columns.drop(row)
        if rows:
            self.change_count += len(rows)
            self._matches.cache_clear()

    def search(self, query_D: F32, k: int, where: Filter | None = None) -> Found:
        """Returns the min(k, matching) nearest items, approximately where FAISS searches."""
        mask, matching_count = self._matching(where)
        index = self.faiss_index
        strategy = choose_strategy(
            matching_count,
            len(self),
            is_approximate=index is not None,
            takes_selector=index is not None and index.takes_selector,
        )
        if index is None or strategy is SearchStrategy.EXACT_SCAN:
            return _scan(self.rows, query_D, k, mask, matching_count, self.fallback)
        available_count = len(self) if matching_count is None else matching_count
        share = available_count / max(1, index.row_count)
        effort = max(1.0, min(_MAX_EFFORT, 1 / share)) if mask is not None else 1.0
        if strategy is SearchStrategy.PRE_FILTER:
            candidates, reason = index.candidates(
                query_D,
                fetch_count(index, k),
                mask=self._known(mask, index),
                effort=effort,
            )
        else:
            candidates, reason = self._candidates_among_all(query_D, k, index, mask, share, effort)
        hits = self._compare(query_D, k, candidates, mask, index)
        if len(hits) < (count := min(k, available_count)):
            # FAISS searched too few lists to find as many as match.
            why = f"{index.index_type} found {len(hits):,} of {count:,}"
            fallback = Fallback(SearchFallback.TOO_FEW_FOUND, why)
            return _scan(self.rows, query_D, k, mask, matching_count, fallback)
        path = SearchPath(
            strategy,
            index.index_type,
            "cpu" if reason else index.device,
            Fallback(SearchFallback.DEVICE, reason) if reason else self.fallback,
            matching_count,
        )
        return Found(hits, path)

    def near_each(self, embeddings_VD: F32, k: int, *, effort: float) -> I64:
        """Returns the live rows nearest to each embedding, sorted; none without a FAISS index.

        FAISS finds k for each at most, and of the rows that it does not have yet all are compared.
        """
        index, rows = self.faiss_index, self.rows
        if index is None:
            return np.empty(0, np.int64)
        if index.takes_selector or not rows.dead_count:
            mask = self._known(None, index)
            found = index.near_each(embeddings_VD, k, effort=effort, mask=mask)
        else:
            # More, so that enough remain without the dead.
            count = math.ceil(k * rows.row_count / max(1, len(rows)))
            found = index.near_each(embeddings_VD, count, effort=effort)
            found = found[rows.live[found]]
        if not self.tail_count:
            return found
        tail = near_rows(rows, embeddings_VD, k, start_row=index.row_count)
        return np.concatenate([found, tail])

    def selection(self, where: Filter | None = None) -> Mask | None:
        """Returns which rows the filter matches, [row_count]; None without a filter."""
        return self._matching(where)[0]

    def frozen_scan(self, where: Filter | None = None) -> Callable[[F32, int], Found]:
        """Returns what finds the min(k, matching) nearest items by comparing a query with each.

        Of the items as they are now, safe to run during changes.
        """
        rows = self.rows.frozen()
        mask, matching_count = self._matching(where)
        return lambda query_D, k: _scan(rows, query_D, k, mask, matching_count, NO_FALLBACK)

    def _matching(self, where: Filter | None) -> tuple[Mask | None, int | None]:
        if where is None:
            return None, None
        return self._matches(where)

    def _known(self, mask: Mask | None, index: FaissIndex) -> Mask | None:
        """Returns which of its rows FAISS may find; None for all."""
        if mask is not None:
            return mask[: index.row_count]
        return self.rows.live[: index.row_count] if self.rows.dead_count else None

    def _candidates_among_all(
        self,
        query_D: F32,
        k: int,
        index: FaissIndex,
        mask: Mask | None,
        share: float,
        effort: float,
    ) -> tuple[I64, str]:
        """Finds so many candidates that enough remain without dead and filtered rows.

        The effort grows too, because the nearest matches are further away than the nearest rows.
        """
        if mask is None and index.takes_selector:
            return index.candidates(query_D, fetch_count(index, k), mask=self._known(None, index))
        count = int(1.5 * fetch_count(index, k) / max(share, 1e-3)) + 1
        candidates, reason = index.candidates(query_D, count, effort=effort)
        keep = self.rows.live if mask is None else mask
        return candidates[keep[candidates]], reason

    def _compare(
        self,
        query_D: F32,
        k: int,
        candidates: I64,
        mask: Mask | None,
        index: FaissIndex,
    ) -> list[RowHit]:
        if index.is_refined:
            self.rows.prefetch(candidates)
        similarities, found = compare_rows(self.rows, query_D, candidates, k + 1)
        if self.tail_count:
            tail = scan_rows(self.rows, query_D, k + 1, start_row=index.row_count, mask=mask)
            similarities = np.concatenate([similarities, tail[0]])
            found = np.concatenate([found, tail[1]])
        return ordered_hits(self.rows, similarities, found)[:k]


def _matches(columns: AttributeColumns, rows: EmbeddingRows, where: Filter) -> tuple[Mask, int]:
    """Returns which rows the filter matches, and how many."""
    mask = columns.matching(where, rows.row_count) & rows.live
    return mask, int(np.count_nonzero(mask))


def _scan(
    rows: EmbeddingRows,
    query_D: F32,
    k: int,
    mask: Mask | None,
    matching_count: int | None,
    fallback: Fallback,
) -> Found:
    hits = ranked_hits(
        rows,
        lambda count: scan_rows(rows, query_D, count, mask=mask),
        k,
        len(rows) if matching_count is None else matching_count,
    )
    return Found(
        hits,
        SearchPath(SearchStrategy.EXACT_SCAN, fallback=fallback, matching_count=matching_count),
    )
