r"""Compares index_svc over an outside engine with raw calls of that engine.

    PYTHONPATH=.venv/engines/milvus python -m benchmarks.bench.engines [--size 100000]

index_svc is a process of its own, called over gRPC; raw calls are those of the engine's client, in
this process. Both take turns, each first in every second one. Starts the Milvus of
`make test-engines`, unless `--url` names one. Over made vectors (clustered_vectors.py): texts whose
attribute `number` has 1,000 values, then 20 kB pictures with tokens in batches of 64. It prints
JSON: durable items a second; search times, rates by sixteen callers, CPU a search and recall at 20
of both; recall under filters of several shares; and what a consistency token costs.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.support.clustered_vectors import write_vectors
from benchmarks.support.loads.growth import tree_cpu_seconds
from tandem.chassis.calls.channels import open_channel
from tandem.contract.content import (
    Encoding,
    ImageContent,
    ImageTokens,
    Modality,
    TextContent,
    TextTokens,
)
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attribute_wire import checked_filter, filter_to_proto
from tandem.contract.filtering.filters import Filter, InRange
from tandem.errors import ServiceUnavailable
from tandem.remote.shard import RemoteShard
from tandem.stack.free_ports import free_ports
from tandem.stages.item_write import Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import Shard

INDEX, MODEL, K = "bench", "model", 20
CALLER_COUNT, TURN_COUNT = 16, 6
VALUE_COUNT = 1_000
PICTURE_COUNT = 1_920

Search = Callable[[np.ndarray], Awaitable[list[str]]]


async def main(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Returns the figures."""
    vectors = write_vectors(work / f"vectors-{arguments.size}", arguments.size, 7, 400)
    items_ND, queries_QD = vectors.items_ND(), vectors.queries_QD()
    result: dict[str, Any] = {"engine": "milvus", "size": arguments.size, "load": [load()]}
    with index_service(arguments.url, arguments.namespace) as service:
        async with open_channel(service.address) as channel:
            shard = RemoteShard(channel, 0)
            await serving(shard)
            if arguments.fill:
                result["texts_per_second"] = await fill(shard, items_ND)
            raw = Raw(arguments.url, arguments.namespace)
            await raw.settle()

            async def served(query_D: np.ndarray) -> list[str]:
                return await found(shard, query_D)

            sides: dict[str, Search] = {"index_svc": served, "raw": raw.search}
            result |= await turns(sides, queries_QD, service)
            truth_QK = vectors.truth_QK()[:, :K]
            result["recall"] = {
                name: round(await recall(search, queries_QD[:200], truth_QK), 4)
                for name, search in sides.items()
            }
            result["filters"] = await filtered(shard, items_ND, queries_QD[:60])
            result["pictures_per_second"] = await pictures(shard)
            result["token"] = await tokens(shard, items_ND)
    result["load"].append(load())
    return result


async def turns(
    sides: dict[str, Search], queries_QD: np.ndarray, service: "Service"
) -> dict[str, Any]:
    """Returns times by one caller, rates by sixteen, and CPU a search, of turns of both sides."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    ratios: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in (*sides, "caller")}
    for turn in range(TURN_COUNT):
        order = list(sides)[:: 1 if turn % 2 else -1]
        medians = {}
        for name in order:
            taken = await timed(sides[name], queries_QD)
            medians[name] = median(taken)
            times[name] += taken
        ratios.append(medians["index_svc"] - medians["raw"])
        for name in order:
            own, of_service = time.process_time(), tree_cpu_seconds(service.pid)
            rates[name].append(await rate(sides[name], queries_QD))
            own = time.process_time() - own
            of_service = tree_cpu_seconds(service.pid) - of_service
            searches = 2 * len(queries_QD)
            cpu[name].append(1e3 * (own if name == "raw" else of_service) / searches)
            if name == "index_svc":
                cpu["caller"].append(1e3 * own / searches)
    shares = [one / other for one, other in zip(rates["index_svc"], rates["raw"], strict=True)]
    return {
        "search_ms": {name: round(1e3 * median(each), 2) for name, each in times.items()},
        "longer_ms_by_turn": [round(1e3 * each, 2) for each in ratios],
        "searches_per_second": {name: round(median(each)) for name, each in rates.items()},
        "rate_share_by_turn": [round(each, 2) for each in shares],
        "cpu_ms_a_search": {name: round(median(each), 2) for name, each in cpu.items()},
    }


class Service(subprocess.Popen[bytes]):
    """index_svc over an engine, in a process of its own."""

    def __init__(self, url: str, namespace: str) -> None:
        port, metrics_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        settings = {
            "ADDRESS": self.address,
            "METRICS_PORT": str(metrics_port),
            "SHARD_NUMBER": "0",
            "SHARD_COUNT": "1",
            "ENGINE": "milvus",
            "ENGINE_URL": url,
            "ENGINE_NAMESPACE": namespace,
        }
        super().__init__(
            [sys.executable, "-m", "index_svc"],
            env=os.environ | {f"INDEX_{name}": value for name, value in settings.items()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@contextmanager
def index_service(url: str, namespace: str) -> Iterator[Service]:
    """Yields a service, and ends it."""
    service = Service(url, namespace)
    try:
        yield service
    finally:
        service.terminate()
        service.wait(30)


@contextmanager
def own_milvus(folder: Path) -> Iterator[str]:
    """Yields the URL of a server that this command starts."""
    from tests.support.engines.milvus_server import MilvusServer  # needs what a URL does not

    server = MilvusServer(folder / "milvus")
    server.start()
    try:
        yield f"http://{server.address}?objects=file://{folder}/objects&tokens=on&fields=number:number"
    finally:
        server.stop_for_good()


async def serving(shard: Shard) -> None:
    """Returns once the service answers."""
    end_time = time.monotonic() + 60
    while True:
        try:
            await shard.list_indexes("", 1, [], soon())
            return
        except ServiceUnavailable:
            if time.monotonic() > end_time:
                raise
            await asyncio.sleep(0.1)


def load() -> float:
    """Returns how many processes ran lately."""
    return os.getloadavg()[0]


class Raw:
    """Searches Milvus by the client alone, with the parameters of the shard."""

    def __init__(self, url: str, namespace: str) -> None:
        from pymilvus import AsyncMilvusClient  # here, because only this engine needs it

        self._client = AsyncMilvusClient(url.partition("?")[0])
        self._name = f"{namespace}_{INDEX}"

    async def settle(self) -> None:
        """Has Milvus seal and index what it has."""
        await self._client.flush(self._name)
        for _ in range(600):
            state = await self._client.describe_index(self._name, "embedding")
            if not state["pending_index_rows"]:
                break
            await asyncio.sleep(1.0)
        await asyncio.sleep(15.0)  # until the query node has loaded it

    async def search(self, query_D: np.ndarray) -> list[str]:
        """Returns the ids."""
        [hits] = await self._client.search(
            self._name,
            data=[query_D],
            anns_field="embedding",
            limit=K,
            filter="modality == 0",
            search_params={"params": {"ef": 256}},
            consistency_level="Bounded",
        )
        return [hit["id"] for hit in hits]


async def fill(shard: Shard, items_ND: np.ndarray) -> float:
    """Stores texts, four batches at once; returns how many a second."""
    numbers = iter(range(0, len(items_ND), 250))

    async def writer() -> None:
        for start in numbers:
            rows = range(start, min(start + 250, len(items_ND)))
            await shard.write(
                Upsert(INDEX, MODEL, [text(number, items_ND[number]) for number in rows]), soon()
            )

    await shard.write(Upsert(INDEX, MODEL, [text(0, items_ND[0])]), soon())
    start_time = time.perf_counter()
    await asyncio.gather(*(writer() for _ in range(4)))
    return round(len(items_ND) / (time.perf_counter() - start_time))


async def pictures(shard: Shard) -> float:
    """Stores pictures of 20 kB with 18.8 kB of tokens, 64 at a time; returns how many a second."""
    rng = np.random.default_rng(3)
    tokens_RD = rng.standard_normal((49, 192)).astype(np.float16)
    start_time = time.perf_counter()
    for start in range(0, PICTURE_COUNT, 64):
        made = rng.standard_normal((64, 384)).astype(np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        batch = [
            ItemRecord(
                f"picture-{start + place}",
                ImageContent(rng.bytes(20_000)),
                Encoding(embedding_D, ImageTokens(tokens_RD)),
            )
            for place, embedding_D in enumerate(made)
        ]
        await shard.write(Upsert(INDEX, MODEL, batch), soon())
    return round(PICTURE_COUNT / (time.perf_counter() - start_time))


async def tokens(shard: Shard, items_ND: np.ndarray) -> dict[str, Any]:
    """Returns how long a search takes right after a write, and how often it misses it."""
    figures: dict[str, list[float]] = {"with": [], "without": []}
    missed = {"with": 0, "without": 0}
    for number in range(60):
        kind = "with" if number % 2 else "without"
        item_id = f"lag-{number}"
        embedding_D = items_ND[number]
        item = ItemRecord(
            item_id, TextContent(item_id), Encoding(embedding_D, TextTokens(np.array([1], "i4")))
        )
        sequence = (await shard.write(Upsert(INDEX, MODEL, [item]), soon())).sequence
        start_time = time.perf_counter()
        ids = await found(shard, embedding_D, minimum=sequence if kind == "with" else 0)
        figures[kind].append(time.perf_counter() - start_time)
        missed[kind] += item_id not in ids
        await asyncio.sleep(0.3)
    return {
        kind: {"median_ms": round(1e3 * median(times), 1), "missed": missed[kind], "of": len(times)}
        for kind, times in figures.items()
    }


async def filtered(shard: Shard, items_ND: np.ndarray, queries_QD: np.ndarray) -> dict[str, Any]:
    """Returns recall and time by the share of items that a filter leaves."""
    values = np.arange(len(items_ND)) % VALUE_COUNT
    figures = {}
    for name in ("number", "other"):
        for share in (0.5, 0.25, 0.1, 0.02, 0.005):
            below = int(share * VALUE_COUNT)
            where = InRange(name, below=below)
            rows = np.flatnonzero(values < below)
            truth_QK = rows[np.argsort(-(queries_QD @ items_ND[rows].T), axis=1)[:, :K]]
            times, recalls = [], []
            for query_D, truth_K in zip(queries_QD, truth_QK, strict=True):
                start_time = time.perf_counter()
                ids = await found(shard, query_D, where)
                times.append(time.perf_counter() - start_time)
                recalls.append(len({f"{n:07d}" for n in truth_K} & set(ids)) / K)
            figures[f"{name} {share}"] = {
                "recall": round(float(np.mean(recalls)), 3),
                "median_ms": round(1e3 * median(times), 1),
            }
    return figures


async def found(
    shard: Shard, query_D: np.ndarray, where: Filter | None = None, minimum: int = 0
) -> list[str]:
    """Returns the ids of the nearest texts."""
    checked = None if where is None else checked_filter(filter_to_proto(where))
    query = ShardQuery(INDEX, MODEL, Modality.TEXT, Modality.TEXT, K, [query_D], checked, minimum)
    answer = await shard.search(query, soon())
    return [hit.item_id for hit in answer.found[0].hits]


async def timed(search: Search, queries_QD: np.ndarray) -> list[float]:
    """Returns the seconds of each search, one after another."""
    times = []
    for query_D in queries_QD:
        start_time = time.perf_counter()
        await search(query_D)
        times.append(time.perf_counter() - start_time)
    return times


async def rate(search: Search, queries_QD: np.ndarray) -> float:
    """Returns how many searches a second sixteen callers get."""
    left = iter([*queries_QD, *queries_QD])

    async def caller() -> None:
        for query_D in left:
            await search(query_D)

    start_time = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLER_COUNT)))
    return 2 * len(queries_QD) / (time.perf_counter() - start_time)


async def recall(search: Search, queries_QD: np.ndarray, truth_QK: np.ndarray) -> float:
    """Returns the share of the truly nearest that are found."""
    shares = [
        len({f"{n:07d}" for n in truth_K} & set(await search(query_D))) / K
        for query_D, truth_K in zip(queries_QD, truth_QK, strict=False)
    ]
    return float(np.mean(shares))


def text(number: int, embedding_D: np.ndarray) -> ItemRecord:
    """Returns an item that filters can tell apart."""
    value = number % VALUE_COUNT
    return ItemRecord(
        f"{number:07d}",
        TextContent(f"text {number}"),
        Encoding(np.asarray(embedding_D), TextTokens(np.array([1, number], "i4"))),
        {"number": value, "other": value},
    )


def soon() -> Deadline:
    """Returns a deadline that is not reached."""
    return Deadline.after(120.0)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="with objects, tokens=on and fields=number:number")
    parser.add_argument("--namespace", default=f"bench{int(time.time())}")
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--no-fill", dest="fill", action="store_false")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parsed()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = given.work or Path(temporary)
        given.url = given.url or stack.enter_context(own_milvus(folder))
        print(json.dumps(asyncio.run(main(given, folder)), indent=1))
