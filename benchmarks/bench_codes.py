"""What FAISS's codes cost and find, by type and candidates, with the same lists looked at.

    python benchmarks/bench_codes.py [--items 1000000] [--nprobe 64] [--work FOLDER]
    python benchmarks/bench_codes.py --scenes 24000 [--nprobe 64] [--work FOLDER]

One process, one thread, k = 20: FAISS alone asked for so many candidates, and these compared with
their embeddings, as index_svc does. Over made vectors of 384 values (`clustered_vectors.py`), or
over the shipped model's embeddings of so many scenes (`scene_embeddings.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clustered_vectors import QUERY_COUNT, write_vectors
from peers.measurement import F32, Vectors, recall
from raw_faiss import RawFaiss
from scene_embeddings import write_scenes

from index_svc.retrieval.index_type import balanced_list_count

_K = 20
_CANDIDATE_COUNTS = (40, 100, 200)
_WARM_UP_COUNT = 50

Row = dict[str, float | str]


def main() -> None:
    """Prints a JSON line and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000, help="vectors to make")
    parser.add_argument("--scenes", type=int, help="take so many scenes' embeddings instead")
    parser.add_argument("--queries", type=int, default=QUERY_COUNT)
    parser.add_argument("--nprobe", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="folder that keeps the vectors")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        vectors = read_vectors(arguments, arguments.work or Path(scratch))
        count, dimension = vectors.items_ND().shape
        rows: list[Row] = []
        for codes in ("SQ8", f"PQ{dimension}x4fs", "RaBitQfs"):
            index_type = f"IVF{balanced_list_count(count)},{codes}"
            rows += measure(vectors, index_type, arguments.nprobe, arguments.seed)
    about = {"items": count, "dimension": dimension, "nprobe": arguments.nprobe}
    print(json.dumps({"benchmark": "codes", "cores": os.cpu_count(), **about, "rows": rows}))
    print(table(rows))


def read_vectors(arguments: argparse.Namespace, work: Path) -> Vectors:
    """Returns what was asked for, made unless the folder has it."""
    seed, query_count = arguments.seed, arguments.queries
    if arguments.scenes:
        folder = work / "vectors" / f"scenes-{arguments.scenes}-{query_count}-{seed}"
        return write_scenes(folder, arguments.scenes, query_count, seed)
    folder = work / "vectors" / f"{arguments.items}-{query_count}-{seed}"
    return write_vectors(folder, arguments.items, seed, query_count)


def measure(vectors: Vectors, index_type: str, nprobe: int, seed: int) -> list[Row]:
    """Returns a row for each number of candidates."""
    start_time = time.perf_counter()
    raw = RawFaiss(vectors, index_type, {"nprobe": nprobe}, seed)
    build_seconds = time.perf_counter() - start_time
    with tempfile.NamedTemporaryFile() as file:
        raw.write(Path(file.name))
        written_bytes = Path(file.name).stat().st_size
    queries_QD = vectors.queries_QD()
    return [
        {
            "type": index_type,
            "build_s": round(build_seconds, 1),
            "bytes_an_item": round(written_bytes / len(vectors.items_ND()), 1),
            "candidates": count,
            "recall": round(recall(raw.comparing(count), vectors, _K), 4),
            "faiss_p50_ms": p50_ms(lambda query_D: raw.search(query_D, count), queries_QD),  # noqa: B023
            "compared_p50_ms": p50_ms(
                lambda query_D: raw.comparing(count)(query_D, _K),  # noqa: B023
                queries_QD,
            ),
        }
        for count in _CANDIDATE_COUNTS
    ]


def p50_ms(search: Callable[[F32], object], queries_QD: F32) -> float:
    """Returns the median of one search after another, in milliseconds."""
    for query_D in queries_QD[:_WARM_UP_COUNT]:
        search(query_D)
    seconds = []
    for query_D in queries_QD:
        start_time = time.perf_counter()
        search(query_D)
        seconds.append(time.perf_counter() - start_time)
    return round(1e3 * statistics.median(seconds), 3)


def table(rows: list[Row]) -> str:
    """Returns the rows as markdown."""
    columns = ("type", "bytes an item", "build s", "candidates", "recall@20")
    columns += ("FAISS p50 ms", "compared p50 ms")
    lines = [f"| {' | '.join(columns)} |", "| --- |" + " ---: |" * 6]
    lines += [
        f"| {row['type']} | {row['bytes_an_item']} | {row['build_s']} | {row['candidates']} | "
        f"{row['recall']:.4f} | {row['faiss_p50_ms']} | {row['compared_p50_ms']} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
