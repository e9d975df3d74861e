"""usearch: an HNSW graph in process, over float16 copies of the embeddings (its own default)."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from measurement import (
    F32,
    I64,
    Search,
    Vectors,
    least_effort,
    peer_arguments,
    print_results,
    time_searches,
)
from usearch.index import Index

EFFORTS = [{"expansion_search": 1 << power} for power in range(5, 12)]


def main() -> None:
    """Builds, tunes, times one client: there is no server."""
    arguments = peer_arguments(__doc__ or "")
    vectors = Vectors(arguments.vectors)
    items_ND = vectors.items_ND()
    index = Index(ndim=items_ND.shape[1], metric="ip", dtype="f16", connectivity=16)
    start_time = time.perf_counter()
    for start in range(0, len(items_ND), 50_000):
        block_ND = np.ascontiguousarray(items_ND[start : start + 50_000])
        index.add(np.arange(start, start + len(block_ND)), block_ND)
    build_seconds = time.perf_counter() - start_time

    def search_with(effort: dict[str, Any]) -> Search:
        index.expansion_search = effort["expansion_search"]
        return search

    def search(query_D: F32, k: int) -> I64:
        return index.search(query_D, k, threads=1).keys.astype(np.int64)  # type: ignore[no-any-return]

    effort, recall = least_effort(EFFORTS, search_with, vectors, arguments.k, arguments.recall)
    saved = Path(arguments.work) / "usearch.index"
    index.save(str(saved))
    print_results(
        [
            {
                "kind": "HNSW f16",
                "effort": effort,
                "recall": recall,
                "build_seconds": build_seconds,
                "disk_bytes": saved.stat().st_size,
                "one_client": time_searches(
                    search, vectors.queries_QD(), arguments.k, arguments.searches
                ).summary(),
            }
        ]
    )


if __name__ == "__main__":
    main()
