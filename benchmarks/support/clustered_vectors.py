"""Unit vectors with the traits of real embeddings that approximate search depends on.

Independent random vectors would be all equally far apart: no index could find the nearest of them
without looking at everything. Here each vector is a cluster's centre plus as much noise of its
own, both with values that fall off as i^-0.8 along hidden axes, turned at random, and scaled to
unit length. About 100 items share a centre, however many items there are. Of 50,000 x 384 made so,
IVF512,SQ8 finds 0.27 / 0.64 / 0.93 / 0.98 of the nearest 20 in 1 / 4 / 16 / 32 lists: recall is
bought list by list, as with real embeddings, and not by the first one (well separated clusters) or
hardly at all (no clusters). The local intrinsic dimension is printed with each result. Queries are
drawn alike and are not items.

Shapes: N items, Q queries, D values, K nearest.
"""

from pathlib import Path

import faiss
import numpy as np

from benchmarks.peers.measurement import F32, I64, Vectors

DIMENSION = 384
TRUTH_K = 100

_ITEMS_OF_A_CLUSTER = 100
_FALL_OFF = 0.8
_DRAW_COUNT = 50_000


def write_vectors(
    parent: Path, item_count: int, seed: int, query_count: int, dimension: int = DIMENSION
) -> Vectors:
    """Writes items, queries and the exact truth, unless they are there already."""
    folder = parent / f"{item_count}x{dimension}-{query_count}-{seed}"
    vectors = Vectors(folder)
    if (folder / "truth.npy").is_file():
        return vectors
    folder.mkdir(parents=True, exist_ok=True)
    source = Source(item_count, seed, dimension)
    np.save(folder / "queries.npy", source.draw(query_count))
    items_ND = np.lib.format.open_memmap(
        folder / "items.npy", mode="w+", dtype=np.float32, shape=(item_count, dimension)
    )
    for start in range(0, item_count, _DRAW_COUNT):
        stop = min(start + _DRAW_COUNT, item_count)
        items_ND[start:stop] = source.draw(stop - start)
    items_ND.flush()
    similarities_QK, truth_QK = nearest(items_ND, vectors.queries_QD(), TRUTH_K)
    np.save(folder / "similarities.npy", similarities_QK)
    np.save(folder / "truth.npy", truth_QK)  # last: its presence says that all is there
    return vectors


def local_intrinsic_dimension(vectors: Vectors) -> float:
    """Returns the maximum-likelihood estimate (Levina and Bickel, 2004) at the queries."""
    similarities_QK = np.load(vectors.folder / "similarities.npy").astype(np.float64)
    distances_QK = np.sqrt(np.maximum(2 - 2 * similarities_QK, 1e-12))
    return float(-1 / np.mean(np.log(distances_QK[:, :-1] / distances_QK[:, -1:])))


class Source:
    """Draws such vectors, the same ones for the same seed."""

    def __init__(self, item_count: int, seed: int, dimension: int = DIMENSION) -> None:
        """`item_count` says how many clusters there are."""
        self._random = np.random.default_rng(seed)
        self._dimension = dimension
        scales_D = np.arange(1, dimension + 1, dtype=np.float32) ** -_FALL_OFF
        turn_DD = np.linalg.qr(self._random.standard_normal((dimension, dimension)))[0]
        self._axes_DD = scales_D[:, np.newaxis] * turn_DD.astype(np.float32)
        self._centres_CD = self._normal(max(1, item_count // _ITEMS_OF_A_CLUSTER))

    def draw(self, count: int) -> F32:
        """Returns the next ones, [N, D], of unit length."""
        owners = self._random.integers(len(self._centres_CD), size=count)
        drawn_ND = (self._centres_CD[owners] + self._normal(count)) @ self._axes_DD
        return drawn_ND / np.linalg.norm(drawn_ND, axis=1, keepdims=True)

    def _normal(self, count: int) -> F32:
        return self._random.standard_normal((count, self._dimension), dtype=np.float32)


def nearest(items_ND: F32, queries_QD: F32, k: int) -> tuple[F32, I64]:
    """Returns similarities and numbers [Q, K] of the truly nearest items, best first.

    Compares all, a part of the items at a time so that no copy of all is made.
    """
    parts = []
    for start in range(0, len(items_ND), _DRAW_COUNT):
        block = np.ascontiguousarray(items_ND[start : start + _DRAW_COUNT])
        similarities, places = faiss.knn(queries_QD, block, k, metric=faiss.METRIC_INNER_PRODUCT)
        parts.append((similarities, places + start))
    similarities_QM = np.concatenate([part[0] for part in parts], axis=1)
    found_QM = np.concatenate([part[1] for part in parts], axis=1)
    order_QK = np.argsort(-similarities_QM, axis=1, kind="stable")[:, :k]
    return (
        np.take_along_axis(similarities_QM, order_QK, axis=1),
        np.take_along_axis(found_QM, order_QK, axis=1),
    )
