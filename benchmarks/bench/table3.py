"""The paper's Table 3 in our terms: one text against 50,000 and 1,000,000 pictures, served.

    python -m benchmarks.bench.table3 [--sizes 50000,1000000] [--work FOLDER]

A model of BERT-base's size with random weights (12 layers of 768, 50 image tokens), k = 20, one
shard. Both galleries are indexes of one stack and take turns. Pictures are drawn embeddings
(clustered_vectors.py); tokens of a million would be 77 GB, so an item has none at first, and those
that the queries retrieve then get their own. BE is a search that is not reranked, Coop one that is,
CE one pair's cost, measured between two depths, times the gallery. Each gallery is searched by the
type that the index chooses, and then again by an exact scan, as the paper does. Needs about 12 GB
of memory and disk for a million.

Shapes: N items, Q queries, D values of an embedding, K nearest.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.peers.measurement import F32
from benchmarks.support.clustered_vectors import Source
from benchmarks.support.large_model import LAYER_COUNT, WIDTH, export_large
from benchmarks.support.served_index import BATCH_COUNT, describe, wait_settled
from tandem.chassis.calls.channels import CHANNEL_OPTIONS
from tandem.client import Client, SearchResult
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.stack.stack import LocalStack, Ports
from tandem.v1 import content_pb2, encoder_service_pb2
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tandem.v1.index_service_pb2_grpc import IndexServiceStub

K = 20
# Two depths between which a pair's cost is measured; at most what one batch of the model holds.
DEEP_K = 100
WRITER_COUNT = 3
CALL_SECONDS = 300.0
EXACT = "Flat"
IMAGE = content_pb2.MODALITY_IMAGE

# Geigle et al. 2022 (TACL), Table 3, seconds for one text, pictures encoded before; CPU is an Intel
# Xeon Gold 6154 whose number of cores in use is not given.
PAPER_SECONDS = {
    ("CPU", 50_000): {"be": 0.2, "coop": 6.0, "ce": 2.4 * 3_600},
    ("CPU", 1_000_000): {"be": 1.6, "coop": 13.0, "ce": 47 * 3_600.0},
    ("V100", 50_000): {"be": 0.016, "coop": 0.074, "ce": 120.0},
    ("V100", 1_000_000): {"be": 0.037, "coop": 0.094, "ce": 36 * 60.0},
}


class Gallery:
    """One index, and what is exactly nearest to each query in it."""

    def __init__(self, item_count: int, queries_QD: F32, seed: int) -> None:
        """Nothing is drawn yet."""
        self.item_count = item_count
        self._seed = seed
        self._queries_QD = queries_QD
        self._similarities_QK = np.full((len(queries_QD), K), -2, np.float32)
        self._places_QK = np.full((len(queries_QD), K), -1)

    @property
    def index_id(self) -> str:
        """Names the index."""
        return f"table3-{self.item_count}"

    def blocks(self) -> Iterator[tuple[int, F32]]:
        """Yields all embeddings, [BATCH_COUNT, D], each block with its first item's number."""
        source = Source(self.item_count, self._seed, self._queries_QD.shape[1])
        for start in range(0, self.item_count, BATCH_COUNT):
            yield start, source.draw(min(BATCH_COUNT, self.item_count - start))

    def see(self, start: int, items_ND: F32) -> None:
        """Takes a block's items in where they are among the nearest."""
        query_count = len(self._queries_QD)
        block_Q = np.broadcast_to(
            np.arange(start, start + len(items_ND)), (query_count, len(items_ND))
        )
        similarities = np.concatenate(
            [self._similarities_QK, self._queries_QD @ items_ND.T], axis=1
        )
        places = np.concatenate([self._places_QK, block_Q], axis=1)
        order_QK = np.argsort(-similarities, axis=1, kind="stable")[:, :K]
        self._similarities_QK = np.take_along_axis(similarities, order_QK, axis=1)
        self._places_QK = np.take_along_axis(places, order_QK, axis=1)

    def recall(self, found: Sequence[SearchResult]) -> float:
        """Returns which share of the exactly nearest the searches found."""
        shares = [
            len({int(item.item_id) for item in result.items} & set(nearest_K.tolist())) / K
            for result, nearest_K in zip(found, self._places_QK, strict=True)
        ]
        return statistics.mean(shares)


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Returns the whole result."""
    sizes = [int(size) for size in arguments.sizes.split(",")]
    precision = Precision(arguments.precision or native_precision())
    repository = folder / "model_repository"
    manifest = export_large(
        repository, precision, width=arguments.width, layer_count=arguments.layers
    )
    queries = _queries(arguments.queries)
    with LocalStack(folder / "data", repository, Ports.free(1), caches=False) as stack:
        stack.start()
        with (
            Client(stack.address, timeout_seconds=CALL_SECONDS) as client,
            grpc.insecure_channel(
                stack.address_of("encoder"), options=CHANNEL_OPTIONS
            ) as encoder_channel,
            grpc.insecure_channel(
                stack.address_of("index-0"), options=CHANNEL_OPTIONS
            ) as index_channel,
        ):
            queries_QD = _embeddings(EncoderServiceStub(encoder_channel), queries)
            galleries = [Gallery(size, queries_QD, arguments.seed) for size in sizes]
            prepared = {
                gallery.item_count: _prepare(
                    gallery, queries, manifest, stack, client, index_channel
                )
                for gallery in galleries
            }
            seconds = _measure(client, galleries, queries, arguments.rounds)
            exact = {
                gallery.item_count: _make_exact(
                    gallery, queries, manifest, stack, client, index_channel
                )
                for gallery in galleries
            }
            exact_seconds = _measure(client, galleries, queries, arguments.rounds)
    return {
        "benchmark": "table3",
        "layers": arguments.layers,
        "width": arguments.width,
        "image_tokens": manifest.image_token_count,
        "text_tokens": manifest.text.lengths[0],
        "precision": manifest.precision,
        "k": K,
        "queries": len(queries),
        "rounds": arguments.rounds,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "galleries": [
            {
                "item_count": size,
                **prepared[size],
                **_figures(size, seconds),
                "exact": exact[size] | _figures(size, exact_seconds),
            }
            for size in sizes
        ],
    }


def _queries(count: int) -> list[str]:
    """Returns captions that fit the shortest bucket, as most of the paper's do."""
    captions = (
        caption.text
        for record in scene_records("test", 3, 4 * count)
        for caption in record.captions
    )
    return [text for text in captions if len(text.split()) <= 8][:count]


def _embeddings(encoder: EncoderServiceStub, queries: Sequence[str]) -> F32:
    contents = [content_pb2.Content(text=text) for text in queries]
    response = encoder.EncodeContents(
        encoder_service_pb2.EncodeContentsRequest(contents=contents), timeout=CALL_SECONDS
    )
    return np.stack(
        [np.frombuffer(each.encoding.embedding.values, "<f4") for each in response.results]
    )


def _prepare(
    gallery: Gallery,
    queries: Sequence[str],
    manifest: Manifest,
    stack: LocalStack,
    client: Client,
    channel: grpc.Channel,
) -> dict[str, Any]:
    """Fills the index, and gives tokens to what the queries retrieve; returns how that went."""
    _note(f"filling {gallery.item_count:,}")
    stub = IndexServiceStub(channel)
    start_time = time.perf_counter()
    with ThreadPoolExecutor(WRITER_COUNT) as writers:
        pending = []
        for start, items_ND in gallery.blocks():
            gallery.see(start, items_ND)
            items = [_bare(start + place, item_D) for place, item_D in enumerate(items_ND)]
            pending.append(writers.submit(_upsert, stub, gallery, manifest, items))
            if len(pending) > 2 * WRITER_COUNT:
                pending.pop(0).result()
        for each in pending:
            each.result()
    fill_seconds = time.perf_counter() - start_time
    _note("waiting for its index")

    def settled() -> dict[str, Any]:
        address = stack.address_of("index-0")
        return wait_settled(address, IMAGE, gallery.index_id, with_snapshot=False)

    settled()
    recall = gallery.recall(_found(gallery, queries, client))
    token_count = _give_all_tokens(gallery, queries, manifest, client, stub, settled)
    state = settled()
    return {
        "index_type": state["index_type"],
        "parameters": state["parameters"],
        "recall": recall,
        "fill_seconds": fill_seconds,
        "items_with_tokens": token_count,
    }


def _make_exact(
    gallery: Gallery,
    queries: Sequence[str],
    manifest: Manifest,
    stack: LocalStack,
    client: Client,
    channel: grpc.Channel,
) -> dict[str, Any]:
    """Makes the index an exact scan, and gives tokens to what the queries retrieve by it."""
    _note(f"exact scan of {gallery.item_count:,}")
    request = admin_pb.TuneIndexRequest(
        index_id=gallery.index_id,
        modality=IMAGE,
        tuning=admin_pb.IndexTuning(index_type=EXACT),
    )
    IndexAdminServiceStub(channel).TuneIndex(request, timeout=CALL_SECONDS)

    def settled() -> dict[str, Any]:
        return _wait_exact(stack.address_of("index-0"), gallery.index_id)

    settled()
    recall = gallery.recall(_found(gallery, queries, client))
    token_count = _give_all_tokens(
        gallery, queries, manifest, client, IndexServiceStub(channel), settled
    )
    return {"index_type": EXACT, "recall": recall, "items_with_tokens": token_count}


def _wait_exact(address: str, index_id: str) -> dict[str, Any]:
    """Returns how the index stands once it is an exact scan and nothing is done to it."""
    end_time = time.monotonic() + CALL_SECONDS
    while time.monotonic() < end_time:
        state = describe(address, IMAGE, index_id)
        if state["index_type"] == EXACT and not state["activity"]:
            return state
        time.sleep(0.1)
    raise RuntimeError(f"the index does not become exact: {state}")


def _found(gallery: Gallery, queries: Sequence[str], client: Client) -> list[SearchResult]:
    return [_search(client, gallery, text, K, is_reranked=False) for text in queries]


def _give_all_tokens(
    gallery: Gallery,
    queries: Sequence[str],
    manifest: Manifest,
    client: Client,
    stub: IndexServiceStub,
    settled: Callable[[], object],
) -> int:
    """Gives tokens until no query retrieves an item without; returns to how many items.

    Among what is stored again, an approximate index finds slightly other items.
    """
    tokened: set[int] = set()
    while wanted := _retrieved(gallery, queries, client) - tokened:
        _note(f"tokens for {len(wanted):,} items")
        _give_tokens(gallery, wanted, manifest, stub)
        tokened |= wanted
        settled()
    return len(tokened)


def _retrieved(gallery: Gallery, queries: Sequence[str], client: Client) -> set[int]:
    """Returns the numbers of all items that any query retrieves, at either depth."""
    return {
        int(item.item_id)
        for text in queries
        for depth in (K, DEEP_K)
        for item in _search(client, gallery, text, depth, is_reranked=False).items
    }


def _give_tokens(
    gallery: Gallery, wanted: set[int], manifest: Manifest, stub: IndexServiceStub
) -> None:
    """Stores the items again, with separate tokens."""
    items = [
        _with_tokens(_bare(number, items_ND[number - start]), number, manifest)
        for start, items_ND in gallery.blocks()
        for number in wanted.intersection(range(start, start + len(items_ND)))
    ]
    for start in range(0, len(items), BATCH_COUNT):
        _upsert(stub, gallery, manifest, items[start : start + BATCH_COUNT])


def _upsert(
    stub: IndexServiceStub, gallery: Gallery, manifest: Manifest, items: Sequence[pb.EncodedItem]
) -> None:
    request = pb.UpsertItemsRequest(
        index_id=gallery.index_id, model_fingerprint=manifest.fingerprint, items=items
    )
    stub.UpsertItems(request, timeout=CALL_SECONDS)


def _bare(number: int, item_D: F32) -> pb.EncodedItem:
    """Returns the smallest item there is: a picture of one byte with one token of one value."""
    return pb.EncodedItem(
        item_id=str(number),
        content=content_pb2.Content(image=b"\0"),
        embedding=content_pb2.Embedding(values=item_D.astype("<f4").tobytes()),
        tokens=content_pb2.ContentTokens(
            image=content_pb2.ImageTokens(values=b"\0\0", token_count=1, width=1)
        ),
    )


def _with_tokens(item: pb.EncodedItem, number: int, manifest: Manifest) -> pb.EncodedItem:
    shape = (manifest.image_token_count, manifest.token_width)
    tokens = np.random.default_rng(number).standard_normal(shape, dtype=np.float32)
    image = content_pb2.ImageTokens(
        values=tokens.astype("<f2").tobytes(), token_count=shape[0], width=shape[1]
    )
    item.tokens.CopyFrom(content_pb2.ContentTokens(image=image))
    return item


def _search(
    client: Client, gallery: Gallery, text: str, depth: int, *, is_reranked: bool
) -> SearchResult:
    return client.search(
        text,
        index_id=gallery.index_id,
        retrieve_k=depth,
        rerank_k=depth if is_reranked else None,
        return_n=depth if not is_reranked else K,
        rerank_disabled=not is_reranked,
    )


def _measure(
    client: Client, galleries: Sequence[Gallery], queries: Sequence[str], round_count: int
) -> dict[tuple[int, str], list[float]]:
    """Returns the seconds of each search; galleries and ways take turns, after a warm-up."""
    seconds: dict[tuple[int, str], list[float]] = {}
    ways: dict[str, Callable[[Gallery, str], SearchResult]] = {
        "be": lambda gallery, text: _search(client, gallery, text, K, is_reranked=False),
        "coop": lambda gallery, text: _search(client, gallery, text, K, is_reranked=True),
        "deep": lambda gallery, text: _search(client, gallery, text, DEEP_K, is_reranked=True),
    }
    for number in range(round_count + 1):
        _note(f"round {number} of {round_count}")
        for place, text in enumerate(queries):
            for name, search in ways.items():
                # A pair's cost needs fewer searches: it is a difference of 80 pairs.
                if name == "deep" and place % 5:
                    continue
                for gallery in galleries:
                    start_time = time.perf_counter()
                    search(gallery, text)
                    taken = time.perf_counter() - start_time
                    if number:
                        seconds.setdefault((gallery.item_count, name), []).append(taken)
    return seconds


def _figures(size: int, seconds: dict[tuple[int, str], list[float]]) -> dict[str, Any]:
    p50 = {way: statistics.median(seconds[size, way]) for way in ("be", "coop", "deep")}
    pair = (p50["deep"] - p50["coop"]) / (DEEP_K - K)
    p99 = sorted(seconds[size, "coop"])[int(0.99 * len(seconds[size, "coop"]))]
    return {
        "be_seconds": p50["be"],
        "coop_seconds": p50["coop"],
        "coop_p99_seconds": p99,
        "coop_min_seconds": min(seconds[size, "coop"]),
        "pair_seconds": pair,
        "ce_seconds": pair * size,
    }


def table(result: dict[str, Any]) -> str:
    """Returns the figures as Markdown, next to the paper's."""
    lines = [
        f"| system | items | index | recall@{K} | BE | Coop, k = 20 | CE, all pairs |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    name = f"Tandem, {result['cores']} CPU cores, {result['precision']}"
    lines += [
        f"| {name} | {each['item_count']:,} | {by['index_type']} | {by['recall']:.3f} "
        f"| {by['be_seconds']:.3f} s | {by['coop_seconds']:.3f} s "
        f"| {by['ce_seconds'] / 3600:.2f} h, extrapolated |"
        for each in result["galleries"]
        for by in (each, each["exact"])
    ]
    for (device, size), row in PAPER_SECONDS.items():
        kind = "Intel Xeon Gold 6154" if device == "CPU" else "NVIDIA V100"
        lines.append(
            f"| paper, {kind} | {size:,} | exact | 1 | {row['be']:g} s | {row['coop']:g} s "
            f"| {row['ce'] / 3600:.2f} h |"
        )
    galleries = result["galleries"]
    lines += ["", *(_notes(each) for each in galleries)]
    if len(galleries) > 1:
        growth = galleries[-1]["coop_seconds"] / galleries[0]["coop_seconds"]
        lines.append(f"- Coop, largest gallery over smallest: {growth:.2f}")
    return "\n".join(lines)


def _notes(each: dict[str, Any]) -> str:
    tuned = ", ".join(f"{name}={value:g}" for name, value in each["parameters"].items())
    return (
        f"- {each['item_count']:,} items: {each['index_type']} {tuned}, recall@{K} "
        f"{each['recall']:.3f}; Coop p99 {each['coop_p99_seconds']:.3f} s, least "
        f"{each['coop_min_seconds']:.3f} s; a pair {1e3 * each['pair_seconds']:.1f} ms; "
        f"{each['items_with_tokens']:,} items with tokens of their own"
    )


def _note(event: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {event}", file=sys.stderr, flush=True)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="the paper's Table 3, served")
    parser.add_argument("--sizes", default="50000,1000000", help="items, by commas")
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=tuple(Precision), default=None)
    parser.add_argument("--layers", type=int, default=LAYER_COUNT)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--work", type=Path, default=None, help="a folder with room; else /tmp")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tandem-table3-", dir=arguments.work))
    try:
        result = run(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
