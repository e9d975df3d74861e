"""lancedb: a table in files, searched in process; IVF_PQ refined by exact comparison, and HNSW."""

import math
import time
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
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

REFINE_FACTOR = 10
_PROBES = [1 << power for power in range(11)]


def main() -> None:
    """Builds, tunes and times each kind by one client: there is no server."""
    arguments = peer_arguments(__doc__ or "")
    vectors = Vectors(arguments.vectors)
    table = lancedb.connect(str(arguments.work)).create_table("items", data=_batches(vectors))
    print_results(
        [
            _measure(kind, table, vectors, arguments.k, arguments)
            for kind in ("IVF_PQ", "IVF_HNSW_SQ")
        ]
    )


def _batches(vectors: Vectors) -> pa.RecordBatchReader:
    items_ND = vectors.items_ND()
    dimension = items_ND.shape[1]
    schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), dimension))])

    def generate() -> Any:  # noqa: ANN401
        for start in range(0, len(items_ND), 10_000):
            block_ND = np.ascontiguousarray(items_ND[start : start + 10_000])
            values = pa.FixedSizeListArray.from_arrays(pa.array(block_ND.ravel()), dimension)
            ids = pa.array(np.arange(start, start + len(block_ND)))
            yield pa.record_batch([ids, values], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, generate())


def _measure(
    kind: str,
    table: Any,  # noqa: ANN401
    vectors: Vectors,
    k: int,
    arguments: Any,  # noqa: ANN401
) -> dict[str, Any]:
    count, dimension = vectors.items_ND().shape
    options: dict[str, Any] = {"num_partitions": max(1, round(math.sqrt(count)))}
    if kind == "IVF_PQ":
        options["num_sub_vectors"] = dimension // 8
        efforts = [{"nprobes": n, "refine_factor": REFINE_FACTOR} for n in _PROBES]
    else:
        # One graph for each million: its lists are graphs themselves.
        options["num_partitions"] = max(1, count // 1_000_000)
        efforts = [{"nprobes": 1, "ef": 1 << power} for power in range(6, 12)]
        efforts = [{**each, "refine_factor": 2} for each in efforts]
    start_time = time.perf_counter()
    table.create_index(metric="dot", index_type=kind, replace=True, **options)
    table.wait_for_index(["vector_idx"])
    build_seconds = time.perf_counter() - start_time

    def search_with(effort: dict[str, Any]) -> Search:
        def search(query_D: F32, k: int) -> I64:
            query = table.search(query_D).distance_type("dot").limit(k).select(["id", "_distance"])
            query = query.nprobes(effort["nprobes"]).refine_factor(effort["refine_factor"])
            if "ef" in effort:
                query = query.ef(effort["ef"])
            return query.to_arrow()["id"].to_numpy()  # type: ignore[no-any-return]

        return search

    effort, recall = least_effort(efforts, search_with, vectors, k, arguments.recall)
    timing = time_searches(search_with(effort), vectors.queries_QD(), k, arguments.searches)
    files = [path for path in Path(arguments.work).rglob("*") if path.is_file()]
    return {
        "kind": kind,
        "effort": effort,
        "recall": recall,
        "build_seconds": build_seconds,
        "disk_bytes": sum(path.stat().st_size for path in files),
        "one_client": timing.summary(),
    }


if __name__ == "__main__":
    main()
