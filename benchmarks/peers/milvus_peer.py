"""Milvus 2.3.5: the real standalone server of its wheel, by IVF_SQ8 and by HNSW."""

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    time_clients,
    time_searches,
)
from milvus import MilvusServer
from pymilvus import Collection, CollectionSchema, DataType, FieldSchema, connections, utility

_INSERT_COUNT = 5_000


@dataclass(frozen=True)
class ServedSearch:
    """Connects a client with one effort."""

    port: int
    effort: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def __call__(self) -> Iterator[Search]:
        """Opens a connection of its own."""
        connections.connect(host="127.0.0.1", port=str(self.port))
        try:
            yield _search(Collection("items"), self.effort)
        finally:
            connections.disconnect("default")


def main() -> None:
    """Fills it once, then indexes, tunes and times one kind after another."""
    arguments = peer_arguments(__doc__ or "")
    vectors = Vectors(arguments.vectors)
    server = MilvusServer(debug=False)
    server.set_base_dir(str(arguments.work / "milvus"))
    server.start()
    try:
        connections.connect(host="127.0.0.1", port=str(server.listen_port))
        collection, fill_seconds = _filled(vectors)
        lists = 1 << round(math.log2(2 * math.sqrt(len(vectors.items_ND()))))
        probes = [1 << power for power in range(2, lists.bit_length())]
        results = [
            _measure(
                "IVF_SQ8",
                {"nlist": lists},
                [{"nprobe": n} for n in probes],
                collection,
                vectors,
                server.listen_port,
                arguments,
            ),
            _measure(
                "HNSW",
                {"M": 16, "efConstruction": 100},
                [{"ef": 1 << power} for power in range(5, 12)],
                collection,
                vectors,
                server.listen_port,
                arguments,
            ),
        ]
    finally:
        server.stop()
    print_results([{**result, "fill_seconds": fill_seconds} for result in results])


def _filled(vectors: Vectors) -> tuple[Any, float]:
    items_ND = vectors.items_ND()
    schema = CollectionSchema(
        [
            FieldSchema("id", DataType.INT64, is_primary=True),
            FieldSchema("vector", DataType.FLOAT_VECTOR, dim=items_ND.shape[1]),
        ]
    )
    collection = Collection("items", schema, shards_num=1)
    start_time = time.perf_counter()
    for start in range(0, len(items_ND), _INSERT_COUNT):
        block_ND = np.ascontiguousarray(items_ND[start : start + _INSERT_COUNT])
        collection.insert([np.arange(start, start + len(block_ND)), block_ND])
    fill_seconds = time.perf_counter() - start_time
    collection.flush()  # an open segment is scanned, not indexed
    return collection, fill_seconds


def _measure(
    kind: str,
    build: dict[str, Any],
    efforts: list[dict[str, Any]],
    collection: Any,  # noqa: ANN401
    vectors: Vectors,
    port: int,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    start_time = time.perf_counter()
    collection.create_index("vector", {"index_type": kind, "metric_type": "IP", "params": build})
    utility.wait_for_index_building_complete("items")
    build_seconds = time.perf_counter() - start_time
    collection.load()
    effort, recall = least_effort(
        efforts, lambda tried: _search(collection, tried), vectors, arguments.k, arguments.recall
    )
    search, queries_QD = _search(collection, effort), vectors.queries_QD()
    result = {
        "kind": kind,
        "build": build,
        "effort": effort,
        "recall": recall,
        "build_seconds": build_seconds,
        "one_client": time_searches(search, queries_QD, arguments.k, arguments.searches).summary(),
        "clients": time_clients(
            ServedSearch(port, effort),
            queries_QD,
            arguments.k,
            max(1, arguments.searches // 8),
            arguments.clients,
        ).summary(),
        "disk_bytes": sum(
            path.stat().st_size for path in Path(arguments.work).rglob("*") if path.is_file()
        ),
    }
    collection.release()
    collection.drop_index()
    return result


def _search(collection: Any, effort: dict[str, Any]) -> Search:  # noqa: ANN401
    parameters = {"metric_type": "IP", "params": effort}

    def search(query_D: F32, k: int) -> I64:
        # Bounded: may miss inserts of the last moments, so that it waits for nothing.
        found = collection.search(
            [query_D], "vector", parameters, limit=k, consistency_level="Bounded"
        )
        return np.array(found[0].ids, dtype=np.int64)

    return search


if __name__ == "__main__":
    main()
