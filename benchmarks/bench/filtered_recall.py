"""What filtered searches find of what is truly nearest, in the index that `auto` builds.

    python -m benchmarks.bench.filtered_recall [--rows 100000] [--queries 200] [--seed 1]

Clustered vectors (clustered_vectors.py), and filters that hold for 0.1, 1, 10 and 50 percent of
them, of three kinds, for it is not the share alone that makes a filter hard:

- anywhere: what the filter asks for has nothing to do with where an item lies;
- clusters: whole clusters are wanted, as by the kind of thing that is to be seen;
- one side: the wanted items lie together on one side of all others, so that most queries have
  none of them near by, and the lists that an index would look at first are empty.

Recall at 20 is against comparing all wanted items. Next to it are how the searches went, and the
median CPU time of one, with the mask of the filter known.
"""

import argparse
import json
import os
import statistics
import time
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.clustered_vectors import DIMENSION, Source
from index_svc.retrieval.embedding_rows import EmbeddingRows
from index_svc.retrieval.hit import F32
from index_svc.retrieval.index_type import IndexTuning, choose_index_types
from index_svc.retrieval.modality_index import ModalityIndex
from index_svc.upkeep.index_build import build_index
from index_svc.upkeep.recall_sample import RecallSample
from tandem.contract.filters import InRange

K = 20
SHARES = (0.001, 0.01, 0.1, 0.5)
_CLUSTER_ITEMS = 100


def run(row_count: int, query_count: int, seed: int, dimension: int = DIMENSION) -> dict[str, Any]:
    """Measures, and prints a table."""
    source = Source(row_count, seed, dimension)
    items_ND, queries_QD = source.draw(row_count), source.draw(query_count)
    index = filled(items_ND, orders(items_ND, np.random.default_rng(seed)))
    start_time = time.monotonic()
    build(index)
    seconds = time.monotonic() - start_time
    assert index.faiss_index is not None
    about = {
        "index_type": index.index_type,
        "parameters": dict(index.faiss_index.parameters),
        "built_recall_percent": index.recall_percent,
        "build_seconds": seconds,
    }
    print(f"{about}\n")
    print("| filter | share | recall@20 | worst query | ways | CPU ms |")
    print("| --- | ---: | ---: | ---: | --- | ---: |")
    cells = [
        measured(index, items_ND, queries_QD, kind, share)
        for kind in ("none", "anywhere", "clusters", "one side")
        for share in (SHARES if kind != "none" else (1.0,))
    ]
    return {
        "benchmark": "filtered_recall",
        "rows": row_count,
        "queries": query_count,
        "seed": seed,
        "dimension": dimension,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        **about,
        "cells": cells,
    }


def orders(items_ND: F32, random: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Returns, by the kind of filter, each item's place from 0 to 1: a filter takes the first."""
    count = len(items_ND)
    side_D = random.standard_normal(items_ND.shape[1], dtype=np.float32)
    # Of clusters as they come out: the nearest of so many items drawn among all.
    heads_HD = items_ND[random.choice(count, max(1, count // _CLUSTER_ITEMS), replace=False)]
    owners_N = np.concatenate(
        [(block @ heads_HD.T).argmax(axis=1) for block in np.array_split(items_ND, 50)]
    )
    keys = {
        "anywhere": random.random(count),
        "clusters": random.permutation(len(heads_HD))[owners_N] + random.random(count) * 0.5,
        "one side": -(items_ND @ side_D).astype(np.float64),
    }
    return {kind: key_N.argsort(kind="stable").argsort() / count for kind, key_N in keys.items()}


def filled(items_ND: F32, places: dict[str, NDArray[np.float64]]) -> ModalityIndex:
    """Returns an index of items with their places as attributes; there is no FAISS index yet."""
    item_ids = [str(number) for number in range(len(items_ND))]
    live = np.ones(len(items_ND), dtype=np.bool_)
    index = ModalityIndex(EmbeddingRows(items_ND.shape[1], items_ND, item_ids, live))
    for row in range(len(items_ND)):
        index.put_attributes(
            row, {kind.replace(" ", "_"): float(each[row]) for kind, each in places.items()}
        )
    return index


def build(index: ModalityIndex) -> None:
    """Builds and tunes as a shard does of itself."""
    tuning = IndexTuning()
    types = choose_index_types(tuning, len(index), index.rows.dimension)
    rows = index.rows.frozen()
    built, recall = build_index(
        types, RecallSample.draw(rows, EmbeddingRows(index.rows.dimension).frozen()), tuning
    )
    index.faiss_index, index.recall_percent = built, recall.percent


def measured(
    index: ModalityIndex, items_ND: F32, queries_QD: F32, kind: str, share: float
) -> dict[str, Any]:
    """Returns the figures of one kind of filter and share, and prints their row."""
    name = kind.replace(" ", "_")
    condition = None if kind == "none" else InRange(name, below=share)
    wanted = np.array(
        [condition is None or index.attributes[row][name] < share for row in range(len(items_ND))]
    )
    rows = np.flatnonzero(wanted)
    similarities_QN = queries_QD @ items_ND[rows].T
    recalls, ways, seconds = [], Counter[str](), []
    index.search(queries_QD[0], K, condition)  # evaluates the filter, whose mask is then kept
    for query_D, similarities_N in zip(queries_QD, similarities_QN, strict=True):
        start_time = time.thread_time()
        found = index.search(query_D, K, condition)
        seconds.append(time.thread_time() - start_time)
        count = min(K, len(rows))
        nearest = set(rows[np.argpartition(-similarities_N, count - 1)[:count]].tolist())
        recalls.append(sum(int(hit.item_id) in nearest for hit in found.hits) / count)
        way = found.path.strategy.name.lower()
        ways[
            f"{way} ({found.path.fallback.kind.name.lower()})" if found.path.fallback else way
        ] += 1
    cell = {
        "filter": kind,
        "share": share,
        "recall": statistics.mean(recalls),
        "worst": min(recalls),
        "ways": dict(ways),
        "cpu_ms": statistics.median(seconds) * 1e3,
    }
    ways_text = ", ".join(f"{way} {count}" for way, count in ways.most_common())
    print(
        f"| {kind} | {share:g} | {cell['recall']:.4f} | {cell['worst']:.2f} | {ways_text} "
        f"| {cell['cpu_ms']:.2f} |",
        flush=True,
    )
    return cell


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dimension", type=int, default=DIMENSION)
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.rows, arguments.queries, arguments.seed, arguments.dimension)))
