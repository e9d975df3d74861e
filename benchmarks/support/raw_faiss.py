"""FAISS in this process, by the type and parameters that index_svc uses, with nothing around it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import faiss as faiss_module
import numpy as np

from benchmarks.peers.measurement import F32, I64, Search, Vectors
from tandem.local.shard.retrieval.faiss_index import list_count, make_empty

faiss: Any = faiss_module  # its stubs lack much of what is used here

_POINTS_PER_CENTROID = 64
_MIN_TRAIN_COUNT = 20_000
_ADD_COUNT = 50_000


class RawFaiss:
    """One index, asked by one thread."""

    def __init__(
        self, vectors: Vectors, index_type: str, parameters: Mapping[str, float], seed: int
    ) -> None:
        """Trains and fills it as index_svc does: on a sample of 64 points a list."""
        faiss.omp_set_num_threads(1)  # as index_svc does
        self._items_ND = vectors.items_ND()
        self._index_type = index_type
        count, dimension = self._items_ND.shape
        self.index = make_empty(index_type, dimension)
        train_count = max(_MIN_TRAIN_COUNT, _POINTS_PER_CENTROID * list_count(self.index))
        sample = np.arange(count)
        if train_count < count:
            sample = np.random.default_rng(seed).choice(count, train_count, replace=False)
            sample.sort()
        if not self.index.is_trained:
            self.index.train(self._items_ND[sample])
        for start in range(0, count, _ADD_COUNT):
            self.index.add(np.ascontiguousarray(self._items_ND[start : start + _ADD_COUNT]))
        for name, value in parameters.items():
            faiss.ParameterSpace().set_index_parameter(self.index, name, value)

    def search(self, query_D: F32, k: int) -> I64:
        """Returns what the index alone finds."""
        return self.index.search(query_D[np.newaxis], k)[1][0]

    def search_and_compare(self, query_D: F32, k: int) -> I64:
        """Returns the k best of the candidates that index_svc would fetch, compared exactly."""
        return self.comparing(self._fetch_count(k))(query_D, k)

    def comparing(self, count: int) -> Search:
        """Returns a search for the best of so many candidates, compared exactly."""

        def search(query_D: F32, k: int) -> I64:
            candidates = self.search(query_D, count)
            candidates = candidates[candidates >= 0]
            similarities = self._items_ND[candidates] @ query_D
            return candidates[np.argsort(-similarities)[:k]]

        return search

    def write(self, path: Path) -> None:
        """Writes the index, without its parameters, for a process of its own to read."""
        faiss.write_index(self.index, str(path))

    def _fetch_count(self, k: int) -> int:
        if "RaBitQ" in self._index_type and "Refine" not in self._index_type:
            return 3 * k + 140
        if "PQ" in self._index_type:
            return max(4 * k, 100)
        return max(2 * k, k + 20) if "SQ" in self._index_type else k + 1
