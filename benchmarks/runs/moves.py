"""Moves an index to other shards during searches and writes: none may fail or be lost.

    python -m benchmarks.runs.moves [--places 2,3,1] [--items 5000] [--searches 20000]
    python -m benchmarks.runs.moves --places 2,3,pgvector,1 --engine-url postgresql://…
    python -m benchmarks.runs.moves --places 2,3,milvus,1 --engine-url 'http://…?objects=…&tokens=on'
    python -m benchmarks.runs.moves --items 2000 --searches 500    # the short form

A whole Tandem on this machine with a small model. 16 clients search all the time, with the
consistency token of the newest write before each search, and 50 writes a second store, replace and
remove items. `tandem move` takes the index from each place to the next, which is a number of shards
or an engine; in the first move it is killed half-way, and started again. Prints one JSON line and a
table. Exits 1 where a search or a write failed, or the last shards do not have exactly what was
acknowledged.
"""

import argparse
import asyncio
import itertools
import json
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.small_model import save_small, short_texts
from tandem.client import AsyncClient
from tandem.corpus.scenes.records import scene_records
from tandem.errors import ItemCorrupt, TandemError
from tandem.local.item_store.item_store import ItemStore, StoredEmbedding
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.stack.stack import LocalStack, Ports

INDEX_ID = "moves"
CLIENT_COUNT = 16
WRITES_A_SECOND = 50
# Of every ten writes six store an item, three replace one and one removes one.
REPLACED_FROM, REMOVED_FROM = 6, 9
START_SECONDS = 60.0
SETTLE_SECONDS = 3.0


@dataclass
class Load:
    """What the clients did, and what is acknowledged."""

    texts: Sequence[str]
    token: str = ""
    expected: dict[str, str] = field(default_factory=dict)
    """The text of each item that is stored, by acknowledgement."""
    searches: list[tuple[float, float]] = field(default_factory=list)
    """When each began, and its seconds."""
    writes: list[tuple[float, float]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    degraded_count: int = 0

    async def search(self, client: AsyncClient, pause_seconds: float) -> None:
        """Searches until cancelled."""
        for number in itertools.count():
            await asyncio.sleep(pause_seconds)
            begin_time = time.monotonic()
            try:
                answer = await client.search(
                    self.texts[number % len(self.texts)],
                    index_id=INDEX_ID,
                    target_modality="text",
                    consistency_tokens=[self.token],
                    rerank_disabled=number % 2 == 0,
                )
                self.degraded_count += bool(answer.degradations)
                if not answer.items:
                    self.failures.append("a search found nothing")
            except TandemError as error:
                self.failures.append(f"search: {error.reason}: {error.message[:120]}")
            self.searches.append((begin_time, time.monotonic() - begin_time))

    async def write_steadily(self, client: AsyncClient, in_flight_count: int) -> None:
        """Begins 50 writes a second until cancelled, or as many as are answered."""
        tasks: set[asyncio.Task[None]] = set()
        places = asyncio.Semaphore(in_flight_count)
        begin_time = time.monotonic()
        busy: set[str] = set()
        try:
            for number in itertools.count():
                await asyncio.sleep(begin_time + number / WRITES_A_SECOND - time.monotonic())
                await places.acquire()
                task = asyncio.create_task(self._write(client, number, busy))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: places.release())
        finally:
            await asyncio.gather(*tasks)

    async def _write(self, client: AsyncClient, number: int, busy: set[str]) -> None:
        begin_time, kind = time.monotonic(), number % 10
        item_id = f"live-{number}"
        if kind >= REPLACED_FROM:
            old = f"live-{number - 10 * kind}"
            if old in self.expected and old not in busy:
                item_id = old
        busy.add(item_id)
        try:
            if kind >= REMOVED_FROM and item_id in self.expected:
                await client.remove([item_id], index_id=INDEX_ID)
                del self.expected[item_id]
            else:
                text = self.texts[(7 * number) % len(self.texts)]
                async for outcome in client.ingest([(item_id, text)], index_id=INDEX_ID):
                    if outcome.error is not None:
                        raise outcome.error
                    self.token = outcome.consistency_token
                self.expected[item_id] = text
        except TandemError as error:
            self.failures.append(f"write: {error.reason}: {error.message[:120]}")
        busy.discard(item_id)
        self.writes.append((begin_time, time.monotonic() - begin_time))


def quantiles(calls: Sequence[tuple[float, float]], begin: float, end: float) -> list[float]:
    """Returns count, median, 99th percentile and longest milliseconds of calls begun between."""
    found = [seconds for begin_time, seconds in calls if begin <= begin_time < end]
    if not found:
        return [0]
    p50, p99, most = (float(1000 * np.quantile(found, q)) for q in (0.5, 0.99, 1.0))
    return [len(found), round(p50, 1), round(p99, 1), round(most, 1)]


def shard_count(place: str) -> int:
    """Returns the number of shards; an engine is one."""
    return int(place) if place.isdigit() else 1


@contextmanager
def target(
    source: LocalStack, folder: Path, place: str, version: int, engine_url: str
) -> Iterator[LocalStack]:
    """Runs the index and rerank services of more shards, on the Triton of the source."""
    count = shard_count(place)
    ports = replace(Ports.free(count), triton=source.ports.triton)
    settings = {"INDEX_SHARD_MAP_VERSION": str(version)}
    namespace = f"moves{secrets.token_hex(4)}"
    if not place.isdigit():
        for service in ("INDEX", "RERANK"):
            settings |= {
                f"{service}_ENGINE": place,
                f"{service}_ENGINE_URL": engine_url,
                f"{service}_ENGINE_NAMESPACE": namespace,
            }
    stack = LocalStack(folder, source.model_repository, ports, settings=settings)
    folder.mkdir()
    (folder / "logs").mkdir()
    try:
        names = [f"{kind}-{number}" for kind in ("index", "rerank") for number in range(count)]
        for name in names:
            stack.start_service(name)
        for name in names:
            stack.wait_until_serving(name, time.monotonic() + START_SECONDS)
        yield stack
    finally:
        stack.stop()


def command(source: LocalStack, to: LocalStack, folder: Path, version: int) -> list[str]:
    """Returns the arguments of `tandem move` from one to the other."""

    def addresses(option: str, stack: LocalStack, kind: str) -> list[str]:
        numbers = range(len(stack.ports.index))
        return [part for n in numbers for part in (option, stack.address_of(f"{kind}-{n}"))]

    return [
        *(sys.executable, "-m", "tandem.cli", "move"),
        *addresses("--from", source, "index"),
        *addresses("--to", to, "index"),
        *addresses("--rerank-address", to, "rerank"),
        *("--shard-map-file", str(folder / "map.json")),
        *("--progress-file", str(folder / f"move-{version}.json")),
    ]


def move(arguments: Sequence[str], progress: Path, *, is_killed: bool) -> dict[str, Any]:
    """Runs the command to its end, or kills it within its copy first."""
    begin_time = time.monotonic()
    killed_seconds = 0.0
    if is_killed:
        process = subprocess.Popen(arguments)
        while not (progress.exists() and '"item_id": "item-0' in progress.read_text()):
            time.sleep(0.005)
        process.kill()
        if process.wait() == 0:
            raise RuntimeError("the move ended before it was killed: give it more --items")
        killed_seconds = time.monotonic() - begin_time
        time.sleep(1.0)
    ended = subprocess.run(arguments, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    return {
        "begin": begin_time,
        "end": time.monotonic(),
        "killed_after_seconds": round(killed_seconds, 1),
        "printed": ended.stderr.splitlines()[-4:] + ended.stdout.splitlines()[-2:],
    }


def stored(stack: LocalStack, count: int) -> dict[str, str]:
    """Returns the text of every item on the shards, by id."""
    found: dict[str, str] = {}
    for number in range(count):
        store = ItemStore.open(stack.store_path(number), number, count, readonly=True)
        found.update((each.item_id, each.text) for each in embeddings(store))
        store.close()
    return found


def embeddings(store: ItemStore) -> Iterator[StoredEmbedding]:
    """Yields the items; raises ItemCorrupt."""
    for each in store.scan_embeddings(INDEX_ID):
        if isinstance(each, ItemCorrupt):
            raise each
        yield each


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    places = arguments.places.split(",")
    load = Load(short_texts(scene_records("test", 3, 100)))
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        repository = folder / "model_repository"
        export_model(save_small(folder / "checkpoint"), repository, Precision.FP32)
        settings = {
            "ORCHESTRATOR_SHARD_MAP_FILE": str(folder / "map.json"),
            # An ingest of one item is a stream of its own here.
            "ORCHESTRATOR_MAX_INGEST_STREAM_COUNT": str(2 * arguments.in_flight),
            "ORCHESTRATOR_MAX_INFLIGHT_COUNT": "64",
        }
        first = LocalStack(
            folder / "data-1", repository, Ports.free(int(places[0])), settings=settings
        )
        source = opened.enter_context(first)
        await asyncio.to_thread(source.start)
        async with AsyncClient(first.address, timeout_seconds=30.0) as client:
            items = [
                (f"item-{n:06}", load.texts[n % len(load.texts)]) for n in range(arguments.items)
            ]
            async for outcome in client.ingest(items, index_id=INDEX_ID):
                if outcome.error is not None:
                    raise outcome.error
                load.token = outcome.consistency_token
            load.expected.update(items)
            moves = []
            clients = [
                AsyncClient(first.address, timeout_seconds=30.0) for _ in range(CLIENT_COUNT)
            ]
            searching = [
                asyncio.create_task(load.search(each, arguments.pause)) for each in clients
            ]
            writing = asyncio.create_task(load.write_steadily(client, arguments.in_flight))
            begin_time = time.monotonic()
            await asyncio.sleep(SETTLE_SECONDS)
            for version, place in enumerate(places[1:], 2):
                # On a thread, because a start would hold the load's event loop.
                to = await asyncio.to_thread(
                    opened.enter_context,
                    target(
                        source, folder / f"data-{version}", place, version, arguments.engine_url
                    ),
                )
                moved = await asyncio.to_thread(
                    move,
                    command(source, to, folder, version),
                    folder / f"move-{version}.json",
                    is_killed=version == 2,
                )
                moves.append({"from": places[version - 2], "to": place, **moved})
                await asyncio.sleep(SETTLE_SECONDS)
                source = to
            while len(load.searches) < arguments.searches:  # noqa: ASYNC110 (a count)
                await asyncio.sleep(0.2)
            end_time = time.monotonic()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            for task in searching:
                task.cancel()
            await asyncio.gather(*searching, return_exceptions=True)
            for each in clients:
                await each.close()
        found = stored(source, int(places[-1]))
        switches = (folder / "data-1" / "logs" / "orchestrator.log").read_text()
    lost = [each for each in load.expected if found.get(each) != load.expected[each]]
    more = [each for each in found if each not in load.expected]
    quiet_end = moves[0]["begin"]
    return {
        "run": "moves",
        "places": places,
        "item_count": len(found),
        "search_count": len(load.searches),
        "write_count": len(load.writes),
        "seconds": round(end_time - begin_time, 1),
        "writes_a_second": round(len(load.writes) / (end_time - begin_time), 1),
        "failures": load.failures[:10],
        "failure_count": len(load.failures),
        "degraded_count": load.degraded_count,
        "lost": lost[:10],
        "lost_count": len(lost),
        "not_acknowledged_count": len(more),
        "switch_count": switches.count("shards switched"),
        "searches_before": quantiles(load.searches, begin_time, quiet_end),
        "writes_before": quantiles(load.writes, begin_time, quiet_end),
        "moves": [
            {
                **{key: value for key, value in each.items() if key not in ("begin", "end")},
                "seconds": round(each["end"] - each["begin"], 1),
                "searches": quantiles(load.searches, each["begin"], each["end"] + 1),
                "writes": quantiles(load.writes, each["begin"], each["end"] + 1),
            }
            for each in moves
        ],
    }


def main() -> None:
    """Prints one JSON line, and exits 1 where anything failed or was lost."""
    parser = argparse.ArgumentParser(description="moves under searches and writes")
    parser.add_argument("--places", default="2,3,1", help="shard counts, or an engine in between")
    parser.add_argument("--engine-url", default="", help="of the engine's server")
    parser.add_argument("--items", type=int, default=5_000, help="items before the writes")
    parser.add_argument("--searches", type=int, default=20_000, help="least searches in all")
    # More only wait for one another; with fewer, fewer begin, as the printed rate shows.
    parser.add_argument("--in-flight", type=int, default=32, help="most writes at a time")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of a client's pauses")
    # Otherwise what is started here would outlive a run that is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = asyncio.run(run(parser.parse_args()))
    print(json.dumps(result))
    print("\ncalls of a phase: count, p50, p99 and longest ms")
    print(f"before: searches {result['searches_before']}, writes {result['writes_before']}")
    for each in result["moves"]:
        print(
            f"{each['from']} -> {each['to']} in {each['seconds']} s: "
            f"searches {each['searches']}, writes {each['writes']}"
        )
    wrong = result["failure_count"] + result["lost_count"] + result["not_acknowledged_count"]
    if result["switch_count"] != len(result["moves"]):
        wrong += 1
    print(f"{result['search_count']:,} searches, {result['write_count']:,} writes: {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
