"""Finds the nearest rows by comparing the query with each of them."""

from collections.abc import Callable, Sequence

import faiss
import numpy as np

from tandem.local.shard.retrieval.arrays import F32, I64, Mask
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.stages.shard_answer import RowHit

# Where at most one row in so many matches, copying the matches beats skipping the others.
_GATHER_SHARE = 8


def scan_rows(
    rows: EmbeddingRows, query_D: F32, k: int, *, start_row: int = 0, mask: Mask | None = None
) -> tuple[F32, I64]:
    """Returns similarities and numbers of the k nearest live rows from start_row on, best first.

    `mask` [row_count] leaves out live rows as well.

    It takes one query a call: FAISS multiplies batches by BLAS, whose rounding depends on the row's
    place in the block, so equal embeddings would get unequal similarities, which would also depend
    on the other queries.
    """
    if mask is not None or rows.dead_count:
        mask = rows.live if mask is None else mask & rows.live
        wanted_count = int(np.count_nonzero(mask[start_row:]))
        if wanted_count * _GATHER_SHARE <= rows.row_count - start_row:
            return compare_rows(rows, query_D, np.flatnonzero(mask[start_row:]) + start_row, k)
    parts = []
    for start, block in rows.blocks(start_row):
        wanted = None if mask is None else mask[start : start + len(block)]
        similarities, places = _nearest(query_D, block, k, wanted)
        parts.append((similarities, places + start))
    return _best(parts, k)


def near_rows(rows: EmbeddingRows, embeddings_VD: F32, k: int, *, start_row: int) -> I64:
    """Returns the live rows from start_row on nearest to each embedding, sorted.

    There are k for each, or more. All embeddings are compared at once, unlike in scan_rows, so that
    rounding may exchange the last ones.
    """
    found = [np.empty(0, np.int64)]
    for start, block_ND in rows.blocks(start_row):
        live = np.flatnonzero(rows.live[start : start + len(block_ND)])
        if len(live) > k:
            similarities_VN = embeddings_VD @ block_ND[live].T
            places = np.argpartition(-similarities_VN, k - 1, axis=1)[:, :k]
            live = live[np.unique(places)]
        found.append(live + start)
    return np.concatenate(found)


def compare_rows(rows: EmbeddingRows, query_D: F32, candidates: I64, k: int) -> tuple[F32, I64]:
    """Returns similarities and numbers of the k nearest of the candidates, best first."""
    if not len(candidates):
        return np.empty(0, np.float32), np.empty(0, np.int64)
    similarities, places = _nearest(query_D, rows.gather(candidates), k, None)
    return similarities, candidates[places]


def ranked_hits(
    rows: EmbeddingRows,
    fetch: Callable[[int], tuple[F32, I64]],
    k: int,
    available_count: int,
) -> Sequence[RowHit]:
    """Returns the min(k, available_count) best rows of `fetch`, ties by smaller item id.

    `fetch(n)` returns the n best rows, or all if there are fewer.
    """
    count = min(k, available_count)
    if count == 0:
        return []
    fetched_count = min(count + 1, available_count)
    while True:
        similarities, found = fetch(fetched_count)
        # FAISS keeps an arbitrary part of a tie at the end; fetch all of it, for the smallest ids.
        tie_is_cut = len(found) > count and similarities[-1] == similarities[count - 1]
        if not tie_is_cut or len(found) < fetched_count or fetched_count >= available_count:
            break
        fetched_count = min(2 * fetched_count, available_count)
    return ordered_hits(rows, similarities, found)[:count]


def ordered_hits(rows: EmbeddingRows, similarities: F32, found: I64) -> list[RowHit]:
    """Returns the rows as hits, best first, ties by smaller item id."""
    negated = (-similarities).tolist()
    ordered = sorted(zip(negated, rows.ids.ids_of(found), found.tolist(), strict=True))
    return [RowHit(item_id, -negated, row) for negated, item_id, row in ordered]


def _nearest(query_D: F32, block_ND: F32, k: int, mask: Mask | None) -> tuple[F32, I64]:
    count = min(k, len(block_ND))
    similarities = np.empty(count, dtype=np.float32)
    places = np.empty(count, dtype=np.int64)
    if count == 0:
        return similarities, places
    selector = None
    if mask is not None:
        bits = np.packbits(mask, bitorder="little")
        selector = faiss.IDSelectorBitmap(len(mask), faiss.swig_ptr(bits))
    faiss.knn_inner_product(
        faiss.swig_ptr(query_D),
        faiss.swig_ptr(block_ND),
        len(query_D),
        1,
        len(block_ND),
        count,
        faiss.swig_ptr(similarities),
        faiss.swig_ptr(places),
        selector,
    )
    is_found = places >= 0
    return (similarities, places) if is_found.all() else (similarities[is_found], places[is_found])


def _best(parts: Sequence[tuple[F32, I64]], k: int) -> tuple[F32, I64]:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.empty(0, np.float32), np.empty(0, np.int64)
    similarities = np.concatenate([part[0] for part in parts])
    found = np.concatenate([part[1] for part in parts])
    order = np.argsort(-similarities, kind="stable")[:k]
    return similarities[order], found[order]
