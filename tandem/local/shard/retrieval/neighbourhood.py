"""Finds the neighbours of a query and of its candidates, within a pool of items around them.

The pool has the items nearest to the query, of which the first are its pillars. In an index that
FAISS searches it also has those nearest to each candidate, new items included. A candidate's
neighbours are the items of the pool that are nearest to it: its true neighbours, except those
outside the pool (decision 69).

Shapes: V embeddings (the query, then candidates), P pool, L pillars, C neighbours, d dimensions.
"""

import numpy as np

from tandem.local.shard.retrieval.arrays import F32
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.stages.neighbours import ModalityNeighbours, ShardNeighbourQuery

# Rows to fetch from FAISS: more than the wanted neighbours, as codes are coarse, from a part of
# the lists that a search reads. Of a million made vectors this finds 92 % of the nearest ten.
_FETCHED_PER_NEIGHBOUR = 3
_EFFORT = 1 / 6


def neighbourhood(part: ModalityIndex, query: ShardNeighbourQuery) -> ModalityNeighbours:
    """Returns the neighbours of one modality's items as they are now."""
    # With FAISS each candidate adds its own nearest items, and the query only needs its pillars.
    around_query_count = max(query.pillar_k, query.neighbour_k)
    pool_count = query.pool_k if part.faiss_index is None else around_query_count
    hits = part.search(query.query_D, pool_count).hits
    rows_P = np.fromiter((hit.row for hit in hits), np.int64, len(hits))
    if len(hits) < len(part):
        fetched_count = _FETCHED_PER_NEIGHBOUR * query.neighbour_k
        near = part.near_each(query.nodes[1:], fetched_count, effort=_EFFORT)
        rows_P = np.concatenate([rows_P, np.setdiff1d(near, rows_P, assume_unique=True)])
    pool_PD = part.rows.gather(rows_P) if len(rows_P) else _none(part.rows.dimension)
    return ModalityNeighbours.within(query, pool_PD, rows_P)


def _none(dimension: int) -> F32:
    return np.zeros((0, dimension), np.float32)
