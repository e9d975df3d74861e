"""Compares one index_svc shard with raw FAISS and other vector stores: speed, recall, bytes.

    python -m benchmarks.bench.index [--sizes 10000,100000,1000000] [--peers milvus,chromadb,...]
    python -m benchmarks.bench.index --quick

For each size, over the same clustered vectors (clustered_vectors.py) and held-out queries:

- index_svc: filled over gRPC by several processes in batches of 256, each acknowledged when durable
  and searchable; searched once at rest; built again as a whole and searched by one client (this
  process, in turns with raw FAISS, so that another load hits both) and by sixteen (each a process);
  killed and started again, with and without its snapshot.
- raw FAISS: the same type and parameters, in this process, one thread; with and without comparing
  its candidates exactly, which index_svc always does.
- FAISS behind gRPC: that index in a process of its own, behind the barest server there can be
  (thin_service.py); what index_svc takes above it is its own, the rest is what serving costs here.
- peers: each in an environment of its own that this program makes, tuned to the same recall.

A peer that does not install or run is reported as that. `--work` keeps vectors and environments for
the next run; servers' own data is always rebuilt.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.measurement import Timing, Vectors, recall, time_clients, time_searches
from benchmarks.support.clustered_vectors import DIMENSION, local_intrinsic_dimension, write_vectors
from benchmarks.support.peer_environments import PEERS, measure_peer
from benchmarks.support.raw_faiss import RawFaiss
from benchmarks.support.served_index import (
    IndexProcess,
    ServedSearch,
    describe,
    fill,
    rebuild,
    wait_settled,
)
from benchmarks.support.thin_service import ThinService
from tandem.v1 import content_pb2

K = 20
ROUND_COUNT = 4
# The whole store is read, so it takes long where there are many items.
MAX_COUNT_WITHOUT_SNAPSHOT = 100_000
MAX_COUNT_WITH_TOKENS = 20_000  # 20 kB each

Result = dict[str, Any]


def run(arguments: argparse.Namespace, work: Path) -> Result:
    """Returns the whole result."""
    return {
        "benchmark": "index",
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "seed": arguments.seed,
        "k": K,
        "clients": arguments.clients,
        "recall_target": arguments.recall,
        "sizes": [run_size(arguments, work, count) for count in arguments.sizes],
        "with_image_tokens": run_with_image_tokens(arguments, work),
        "load_after": os.getloadavg()[0],
    }


def run_size(arguments: argparse.Namespace, work: Path, count: int) -> Result:
    """Returns the figures of all parties over so many items."""
    vectors = write_vectors(
        work / "vectors", count, arguments.seed, arguments.queries, arguments.dimension
    )
    note(f"{count:,} vectors ready")
    figures: Result = {
        "item_count": count,
        "dimension": arguments.dimension,
        "local_intrinsic_dimension": round(local_intrinsic_dimension(vectors), 1),
        **run_served(arguments, work / "index_svc", vectors),
        "peers": {},
    }
    for peer in arguments.peers:
        note(f"{peer} at {count:,}")
        figures["peers"][peer] = measure_peer(
            peer,
            vectors,
            work,
            k=K,
            recall=arguments.recall,
            search_count=arguments.searches,
            client_count=arguments.clients,
        )
    return figures


def run_served(arguments: argparse.Namespace, folder: Path, vectors: Vectors) -> Result:
    """Returns index_svc's figures and raw FAISS's."""
    if arguments.restart_alone:
        return {"restart": _restart(arguments, folder, vectors)}
    modality = content_pb2.MODALITY_TEXT
    count = len(vectors.items_ND())
    shutil.rmtree(folder, ignore_errors=True)
    with IndexProcess(folder, count) as process:
        process.wait_serving()
        empty = process.memory_bytes()
        empty_bytes = empty["rss_bytes"]
        fill_seconds = fill(process.address, vectors, arguments.writers, with_image_tokens=False)
        note(f"{count / fill_seconds:,.0f} upserts/s")
        as_filled = wait_settled(process.address, modality) | process.memory_bytes()
        as_filled |= process.disk_bytes()
        connect = ServedSearch(process.address)
        with connect() as search:
            as_filled["recall"] = recall(search, vectors, K)
            as_filled["one_client"] = time_searches(
                search, vectors.queries_QD(), K, arguments.searches // ROUND_COUNT
            ).summary()
        if arguments.as_filled:
            many = time_clients(
                connect, vectors.queries_QD(), K, arguments.searches // 16, arguments.clients
            )
            as_filled[f"clients_{arguments.clients}"] = many.summary()
            process.kill()
            return {
                "as_filled": as_filled | {"upserts_per_second": count / fill_seconds},
                "restart": _restart(arguments, folder, vectors),
            }
        rebuild(process.address, modality)
        built = wait_settled(process.address, modality)
        note(f"built {built['index_type']} {built['parameters']}")
        raw = RawFaiss(vectors, built["index_type"], built["parameters"], arguments.seed)
        raw.write(folder / "raw.faiss")
        with ThinService(folder / "raw.faiss", built["parameters"]) as thin:
            connect_thin = ServedSearch(thin.address)
            figures = _beside_raw(arguments, connect, connect_thin, raw, vectors)
        (folder / "raw.faiss").unlink()
        served = {
            "durable_upserts_per_second": count / fill_seconds,
            "empty_rss_bytes": empty_bytes,
            "empty_anonymous_bytes": empty["anonymous_bytes"],
            **process.memory_bytes(),
            **process.disk_bytes(),
            "as_filled": as_filled,
            "built": built,
            **figures.pop("served"),
        }
    served["restart"] = _restart(arguments, folder, vectors)
    return {"served": served, **figures}


def run_with_image_tokens(arguments: argparse.Namespace, work: Path) -> Result:
    """Returns bytes of an item with the tokens that the demo's model makes of a picture."""
    if not arguments.with_image_tokens:
        return {}
    count = min(MAX_COUNT_WITH_TOKENS, *arguments.sizes)
    vectors = write_vectors(
        work / "vectors", count, arguments.seed, arguments.queries, arguments.dimension
    )
    folder = work / "index_svc"
    shutil.rmtree(folder, ignore_errors=True)
    with IndexProcess(folder, count) as process:
        process.wait_serving()
        fill_seconds = fill(process.address, vectors, arguments.writers, with_image_tokens=True)
        wait_settled(process.address, content_pb2.MODALITY_IMAGE)
        return {
            "item_count": count,
            "durable_upserts_per_second": count / fill_seconds,
            **process.memory_bytes(),
            **process.disk_bytes(),
        }


def note(event: str) -> None:
    """Says on stderr how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {event}", file=sys.stderr, flush=True)


def _beside_raw(
    arguments: argparse.Namespace,
    connect: ServedSearch,
    connect_thin: ServedSearch,
    raw: RawFaiss,
    vectors: Vectors,
) -> Result:
    """Measures served searches and raw ones in turns, then served ones by many clients."""
    queries_QD = vectors.queries_QD()
    with connect() as served, connect_thin() as thin:
        sides = {
            "served": served,
            "thin": thin,
            "raw": raw.search,
            "raw_compared": raw.search_and_compare,
        }
        timings = {name: Timing() for name in sides}
        recalls = {name: recall(search, vectors, K) for name, search in sides.items()}
        for _ in range(ROUND_COUNT):
            for name, search in sides.items():
                time_searches(search, queries_QD, K, 50)  # its memory, back into the caches
                timings[name].add(
                    time_searches(search, queries_QD, K, arguments.searches // ROUND_COUNT)
                )
    many = time_clients(connect, queries_QD, K, max(1, arguments.searches // 4), arguments.clients)
    summaries = {name: timing.summary() for name, timing in timings.items()}
    return {
        "served": {
            "recall": recalls["served"],
            "one_client": summaries["served"],
            f"clients_{arguments.clients}": many.summary(),
        },
        "raw_faiss": {
            "recall": recalls["raw"],
            **summaries["raw"],
            "recall_compared": recalls["raw_compared"],
            "compared": summaries["raw_compared"],
        },
        "thin_service": {"recall": recalls["thin"], **summaries["thin"]},
        "served_minus_raw_p50_ms": summaries["served"]["p50_ms"] - summaries["raw"]["p50_ms"],
        "served_minus_compared_p50_ms": summaries["served"]["p50_ms"]
        - summaries["raw_compared"]["p50_ms"],
        "served_minus_thin_p50_ms": summaries["served"]["p50_ms"] - summaries["thin"]["p50_ms"],
    }


def _restart(arguments: argparse.Namespace, folder: Path, vectors: Vectors) -> Result:
    """Starts the killed process again; seconds from its start to SERVING, and is it as good.

    The first 100 searches find no row in memory, the others all that they need.
    """
    figures: Result = {}
    count = len(vectors.items_ND())
    process, figures["snapshot_seconds"] = _started(folder, count)
    with process:
        state = describe(process.address, content_pb2.MODALITY_TEXT)
        figures |= {name: state[name] for name in ("index_type", "snapshot_sequence")}
        figures["replayed_count"] = state["applied_sequence"] - state["snapshot_sequence"]
        figures["item_count"] = state["item_count"]
        figures |= process.memory_bytes()
        wait_settled(process.address, content_pb2.MODALITY_TEXT)
        process.wait_checked()
        note("settled, and all records checked")
        process.evict_rows()
        connect, queries_QD = ServedSearch(process.address), vectors.queries_QD()
        with connect() as search:
            figures["cold"] = time_searches(search, queries_QD, K, 100).summary()
            figures["recall"] = recall(search, vectors, K)
            warm = time_searches(search, queries_QD, K, arguments.searches)
            figures["one_client"] = warm.summary()
        each_count = max(1, arguments.searches // arguments.clients)
        many = time_clients(connect, queries_QD, K, each_count, arguments.clients)
        figures[f"clients_{arguments.clients}"] = many.summary()
    if count <= MAX_COUNT_WITHOUT_SNAPSHOT:
        process.remove_snapshots()
        process, figures["no_snapshot_seconds"] = _started(folder, count)
        process.kill()
    return figures


def _started(folder: Path, count: int) -> tuple[IndexProcess, float]:
    start_time = time.perf_counter()
    process = IndexProcess(folder, count)
    process.wait_serving()
    return process, time.perf_counter() - start_time


def table(result: Result) -> str:
    """Returns the figures as Markdown."""
    lines = []
    for size in result["sizes"]:
        if "served" not in size:
            continue  # as filled alone: the line of JSON says it all
        lines += [*_size_lines(size, result["clients"]), ""]
    if tokens := result["with_image_tokens"]:
        each = tokens["store_bytes"] / tokens["item_count"]
        lines.append(
            f"With 49 x 192 float16 image tokens, {tokens['item_count']:,} items: {each:,.0f} bytes"
            f" an item in the store, {tokens['durable_upserts_per_second']:,.0f} upserts/s"
        )
    return "\n".join(lines)


def _size_lines(size: Result, clients: int) -> list[str]:
    served, raw, count = size["served"], size["raw_faiss"], size["item_count"]
    thin = size["thin_service"]
    built, restart = served["built"], served["restart"]
    tuned = ", ".join(f"{name}={value:g}" for name, value in built["parameters"].items())
    lines = [
        f"### {count:,} x {size['dimension']}: {built['index_type']} {tuned}",
        "",
        f"| party | clients | recall@{K} | p50 ms | p99 ms | searches/s |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        _line("index_svc", 1, served["recall"], served["one_client"]),
        _line("index_svc", clients, served["recall"], served[f"clients_{clients}"]),
        _line("raw FAISS", 1, raw["recall"], raw),
        _line("raw FAISS, compared exactly", 1, raw["recall_compared"], raw["compared"]),
        _line("FAISS behind gRPC", 1, thin["recall"], thin),
    ]
    for peer, results in size["peers"].items():
        for each in results:
            if "error" in each:
                lines.append(f"| {peer} | | | failed: {each['error'][:60]} | | |")
                continue
            name = f"{peer} {each['kind']} {each['effort']}"
            lines.append(_line(name, 1, each["recall"], each["one_client"]))
            if many := each.get("clients"):
                lines.append(_line(name, clients, each["recall"], many))
    megabyte = 1 << 20
    anonymous = [served["empty_anonymous_bytes"] / count] + [
        each["anonymous_bytes"] / count for each in (served["as_filled"], served, restart)
    ]
    return [
        *lines,
        "",
        f"- served p50 above raw FAISS: {size['served_minus_raw_p50_ms']:.2f} ms; above the same "
        f"with exact comparison: {size['served_minus_compared_p50_ms']:.2f} ms; above FAISS behind "
        f"gRPC: {size['served_minus_thin_p50_ms']:.2f} ms",
        f"- durable upserts: {served['durable_upserts_per_second']:,.0f}/s",
        f"- as filled: {served['as_filled']['index_type']}, recall "
        f"{served['as_filled']['recall']:.4f}, p50 "
        f"{served['as_filled']['one_client']['p50_ms']:.2f} ms; built again in "
        f"{built['seconds']:.1f} s",
        f"- restart: {restart['snapshot_seconds']:.1f} s with snapshot "
        f"({restart['replayed_count']:,} changes replayed), "
        f"without: {restart.get('no_snapshot_seconds', float('nan')):.1f} s; then 100 searches "
        f"over rows that the disk alone has: p50 {restart['cold']['p50_ms']:.1f}, p99 "
        f"{restart['cold']['p99_ms']:.1f} ms",
        f"- memory: {served['rss_bytes'] / megabyte:,.0f} MiB "
        f"({(served['rss_bytes'] - served['empty_rss_bytes']) / count:,.0f} bytes an item above the"
        f" empty process), {restart['rss_bytes'] / megabyte:,.0f} MiB after a restart",
        f"- anonymous memory, bytes an item, with the {anonymous[0]:,.0f} of the empty process: "
        f"{anonymous[1]:,.0f} as filled, {anonymous[2]:,.0f} built again, {anonymous[3]:,.0f} "
        "after a restart",
        f"- disk, bytes an item: store {served['store_bytes'] / count:,.0f}, snapshot "
        f"{served['snapshot_bytes'] / count:,.0f}",
    ]


def _line(party: str, clients: int, found: float, timing: Result) -> str:
    return (
        f"| {party} | {clients} | {found:.4f} | {timing['p50_ms']:.3f} | {timing['p99_ms']:.3f} "
        f"| {timing['searches_per_second']:,.0f} |"
    )


def main() -> None:
    """Prints one JSON line, then a table."""
    arguments = parse()
    if arguments.work:
        arguments.work.mkdir(parents=True, exist_ok=True)
        result = run(arguments, arguments.work.resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
            result = run(arguments, Path(folder))
    print(json.dumps(result))
    print(table(result))


def parse() -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(
        description="one shard compared with raw FAISS and other stores"
    )
    parser.add_argument("--sizes", type=_numbers, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dimension", type=int, default=DIMENSION, help="of the vectors")
    parser.add_argument("--peers", type=_peers, default=[], help=f"of {','.join(PEERS)}; or all")
    parser.add_argument(
        "--clients", type=int, default=16, help="concurrent ones; one is measured as well"
    )
    parser.add_argument("--writers", type=int, default=4, help="processes that fill")
    parser.add_argument("--searches", type=int, default=4_000, help="by one client")
    parser.add_argument("--queries", type=int, default=1_000, help="different ones")
    parser.add_argument("--recall", type=float, default=0.98, help="that peers are tuned to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--as-filled",
        action="store_true",
        help="without a second build and raw FAISS: hours of 10M",
    )
    parser.add_argument(
        "--restart-alone",
        action="store_true",
        help="start over what an earlier run left in --work, and search that",
    )
    parser.add_argument("--with-image-tokens", action="store_true", help="bytes an item with them")
    parser.add_argument("--work", type=Path, help="folder to keep vectors and environments in")
    parser.add_argument("--quick", action="store_true", help="few items: whether it runs at all")
    arguments = parser.parse_args()
    if arguments.restart_alone and not arguments.work:
        parser.error("--restart-alone needs the --work of an earlier run")
    if arguments.quick:
        arguments.sizes, arguments.queries, arguments.searches = [2_000], 40, 80
        arguments.clients, arguments.writers = 2, 2
    return arguments


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _peers(text: str) -> list[str]:
    names = list(PEERS) if text == "all" else [name for name in text.split(",") if name]
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(PEERS)}")
    return names


if __name__ == "__main__":
    main()
