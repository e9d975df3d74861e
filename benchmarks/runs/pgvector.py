"""Measures a shard in Postgres, and kills its processes under writes.

    python -m benchmarks.runs.pgvector [--items 100000] [--kills 10] [--work FOLDER]

Needs the server that `make test-engines` installs. index_svc is a process of its own, called over
gRPC. Prints one JSON line after each part. `pgvector_searches` compares searches with raw calls.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.measurement import F32
from benchmarks.support.clustered_vectors import Source, nearest
from index_svc.settings import IndexSettings
from tandem.chassis.calls.channels import open_channel
from tandem.contract.content import Encoding, ImageContent, ImageTokens, Modality
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attribute_wire import checked_filter, filter_to_proto
from tandem.contract.filtering.filters import Filter, InRange, OneOf
from tandem.errors import TandemError
from tandem.remote.pgvector.shard import PgvectorShard
from tandem.remote.shard import RemoteShard
from tandem.stack.free_ports import free_ports
from tandem.stages.item_write import Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import Shard
from tests.support.engines.postgres import Postgres, running_postgres

INDEX, FINGERPRINT, DIMENSION = "bench", "bench", 384
BATCH_COUNT, WRITER_COUNT, K = 256, 4, 20
Call = Callable[[F32], Awaitable[Sequence[str]]]


def report(part: str, **figures: object) -> None:
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"part": part, **figures, "load": load}, default=float), flush=True)


def soon() -> Deadline:
    return Deadline.after(120.0)


def item(number: int, embedding: F32, token_rows: int = 1, content_bytes: int = 64) -> ItemRecord:
    """Returns a picture with an attribute for each share of items that a filter leaves."""
    return ItemRecord(
        f"item-{number:07}",
        ImageContent(os.urandom(content_bytes)),
        Encoding(embedding, ImageTokens(np.zeros((token_rows, 192), np.float16))),
        {"percent": number % 100, "tenth": str(number % 10), "number": number},
    )


def query(embedding: F32, where: Filter | None = None) -> ShardQuery:
    checked = None if where is None else checked_filter(filter_to_proto(where))
    return ShardQuery(
        INDEX, FINGERPRINT, Modality.IMAGE, Modality.TEXT, K, [embedding], filter=checked
    )


def settings_of(postgres: Postgres) -> IndexSettings:
    return IndexSettings(
        shard_number=0, shard_count=1, engine="pgvector", engine_url=postgres.url()
    )


class IndexProcess:
    """`python -m index_svc` over the server, without a folder of its own."""

    def __init__(self, postgres: Postgres, namespace: str = "tandem") -> None:
        self._postgres, self._namespace = postgres, namespace
        self.port, self._metrics_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = {
            "ADDRESS": f"127.0.0.1:{self.port}",
            "METRICS_PORT": str(self._metrics_port),
            "SHARD_NUMBER": "0",
            "SHARD_COUNT": "1",
            "ENGINE": "pgvector",
            "ENGINE_URL": self._postgres.url(),
            "ENGINE_NAMESPACE": self._namespace,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "index_svc"],
            env=os.environ | {f"INDEX_{name}": value for name, value in settings.items()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


async def answered(call: Callable[[], Awaitable[Any]], seconds: float = 120.0) -> Any:  # noqa: ANN401
    """Returns the call's answer, however often it has to be repeated."""
    end_time = time.monotonic() + seconds
    while True:
        try:
            return await call()
        except TandemError:
            if time.monotonic() > end_time:
                raise
            await asyncio.sleep(0.05)


@asynccontextmanager
async def shards(postgres: Postgres) -> AsyncIterator[tuple[Shard, Shard, IndexProcess]]:
    """Yields a shard of this process, one of index_svc, and the process of that."""
    here = PgvectorShard(settings_of(postgres))
    await here.open()
    process = IndexProcess(postgres)
    process.start()
    channel = open_channel(f"127.0.0.1:{process.port}")
    served = RemoteShard(channel, 0)
    try:
        await answered(lambda: served.list_indexes("", 1, [], soon()))
        yield here, served, process
    finally:
        process.kill()
        await channel.close()
        await here.close()


async def stored(shard: Shard, items: Sequence[ItemRecord], writer_count: int, batch: int) -> float:
    """Returns how many seconds `writer_count` writers took to store the items, batch by batch."""
    parts = iter([items[start : start + batch] for start in range(0, len(items), batch)])

    async def write() -> None:
        for part in parts:
            upsert = Upsert(INDEX, FINGERPRINT, part, f"{part[0].item_id}-{len(part)}")
            await shard.write(upsert, soon())

    start_time = time.monotonic()
    await asyncio.gather(*(write() for _ in range(writer_count)))
    return time.monotonic() - start_time


async def times_ms(call: Call, queries: F32) -> list[float]:
    taken = []
    for each in queries:
        start_time = time.perf_counter()
        await call(each)
        taken.append(1_000 * (time.perf_counter() - start_time))
    return taken


def shard_call(shard: Shard, where: Filter | None = None) -> Call:
    async def call(embedding: F32) -> Sequence[str]:
        [found] = (await shard.search(query(embedding, where), soon())).found
        return [hit.item_id for hit in found.hits]

    return call


async def recall(call: Call, queries: F32, embeddings: F32, kept: np.ndarray) -> float:
    """Returns the share of the truly nearest that the call finds, among the kept items."""
    numbers = np.flatnonzero(kept)
    _, truth = nearest(embeddings[numbers], queries, min(K, len(numbers)))
    found_count = 0
    for each, places in zip(queries, truth, strict=True):
        expected = {f"item-{number:07}" for number in numbers[places]}
        found_count += len(expected & set(await call(each)))
    return found_count / (min(K, len(numbers)) * len(queries))


async def kill_under_writes(
    postgres: Postgres, process: IndexProcess, shard: Shard, kill_count: int
) -> None:
    """Kills Postgres and index_svc in turn while writers store and delete nothing twice."""
    source = Source(10_000, 5, DIMENSION)
    acknowledged: dict[str, int] = {}
    counts = {"batches": 0, "repeated": 0}
    is_over = False

    async def write(writer: int) -> None:
        number = 0
        while not is_over:
            ids = range(number, number + 16)
            items = [
                replace(item(n, each), item_id=f"w{writer}-{n:06}")
                for n, each in zip(ids, source.draw(16), strict=True)
            ]
            upsert = Upsert(INDEX, FINGERPRINT, items, f"w{writer}-{number}")

            async def once(upsert: Upsert = upsert) -> int:
                counts["repeated"] += 1
                return (await shard.write(upsert, Deadline.after(5.0))).sequence

            sequence = await answered(once)
            acknowledged.update({each.item_id: sequence for each in items})
            counts["batches"] += 1
            number += 16

    writers = [asyncio.create_task(write(each)) for each in range(WRITER_COUNT)]
    back: dict[str, list[float]] = {"postgres": [], "index_svc": []}
    for number in range(kill_count):
        await asyncio.sleep(0.5 + 0.1 * (number % 7))
        name = "postgres" if number % 2 == 0 else "index_svc"
        start_time = time.monotonic()
        victim = postgres if name == "postgres" else process
        victim.kill()
        await asyncio.to_thread(victim.start)
        await answered(lambda: shard.list_indexes("", 1, [], Deadline.after(2.0)))
        back[name].append(time.monotonic() - start_time)
    is_over = True
    await asyncio.gather(*writers)
    found: list[str] = []
    while page := await shard.list_item_ids(INDEX, found[-1] if found else "", 1_000, soon()):
        found += page
    answer = await shard.search(query(source.draw(1)[0]), soon())
    report(
        "kills",
        kills=kill_count,
        batches=counts["batches"],
        repeated=counts["repeated"] - counts["batches"],
        acknowledged=len(acknowledged),
        lost=len(acknowledged.keys() - set(found)),
        doubled=len(found) - len(set(found)) + answer.item_count - len(found),
        sequence_minus_items=answer.applied_sequence - len(found),
        back_seconds={name: np.median(each) for name, each in back.items() if each},
        slowest_seconds={name: max(each) for name, each in back.items() if each},
    )


async def lag(shard: Shard, other: Shard, source: Source) -> None:
    """Reports how long after a write another process' search takes to see it, by its token."""
    taken, missed = [], 0
    for number in range(50):
        [embedding] = source.draw(1)
        new = replace(item(number, embedding), item_id=f"lag-{number}")
        written = await shard.write(Upsert(INDEX, FINGERPRINT, [new]), soon())
        start_time = time.perf_counter()
        asked = replace(query(embedding), minimum_sequence=written.sequence)
        [found] = (await other.search(asked, soon())).found
        taken.append(1_000 * (time.perf_counter() - start_time))
        missed += found.hits[0].item_id != new.item_id
    report("token", p50_ms=np.median(taken), p95_ms=np.percentile(taken, 95), missed=missed)


def items_table(postgres: Postgres) -> str:
    return postgres.execute(
        "SELECT schemaname || '.' || tablename FROM pg_tables WHERE tablename LIKE 'items%'"
    )


async def run(postgres: Postgres, item_count: int, kill_count: int) -> None:
    async with shards(postgres) as (here, served, process):
        await measure(postgres, here, served, item_count)
        if kill_count:
            await kill_under_writes(postgres, process, served, kill_count)


async def measure(postgres: Postgres, here: Shard, served: Shard, item_count: int) -> None:
    source = Source(item_count, 1, DIMENSION)
    embeddings, queries = source.draw(item_count), source.draw(1_000)

    heavy = [item(n, each, 49, 20_000) for n, each in enumerate(embeddings[:2_000])]
    for writers in (1, WRITER_COUNT):
        seconds = await stored(served, heavy, writers, 64)
        report(
            "durable",
            token_bytes=18_816,
            content_bytes=20_000,
            writers=writers,
            items_a_second=len(heavy) / seconds,
        )
        await here.delete_index(INDEX, soon())
        heavy = [replace(each, item_id=f"again-{each.item_id}") for each in heavy]
    items = [item(n, each) for n, each in enumerate(embeddings)]
    seconds = await stored(here, items, WRITER_COUNT, BATCH_COUNT)
    report("ingest", items=item_count, items_a_second=item_count / seconds)
    postgres.execute("ANALYZE")
    table = items_table(postgres)
    size = postgres.execute(
        f"SELECT pg_total_relation_size('{table}') || ' ' || pg_indexes_size('{table}')"
    ).split()
    report("bytes_an_item", total=int(size[0]) / item_count, indexes=int(size[1]) / item_count)
    numbers = np.arange(item_count)
    for name, where, kept in (
        ("1 % by value", OneOf("percent", (7,)), numbers % 100 == 7),
        ("10 % by value", OneOf("tenth", ("3",)), numbers % 10 == 3),
        ("0.5 % by range", InRange("number", below=item_count // 200), numbers < item_count // 200),
        ("50 % by range", InRange("number", below=item_count // 2), numbers < item_count // 2),
    ):
        call = shard_call(served, where)
        taken = await times_ms(call, queries[:50])
        found = await recall(call, queries[:50], embeddings, kept)
        report("filter", filter=name, p50_ms=np.median(taken), recall=found)
    await lag(here, served, source)
    await here.delete_index(INDEX, soon())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--work", type=Path, help="where the server's folder is made")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.work))
    try:
        with running_postgres(folder / "data", shared_buffers="1GB") as postgres:
            report("server", version=postgres.execute("SHOW server_version"))
            asyncio.run(run(postgres, arguments.items, arguments.kills))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
