"""Compares searches of a shard in Postgres with raw calls of pgvector: times, rates and CPU.

    python -m benchmarks.runs.pgvector_searches [--items 100000] [--work FOLDER]

Needs the server that `make test-engines` installs. *raw* is one statement of psycopg for the same
query in this process, *shard* the stage in this process, *index_svc* the stage in a process of its
own, over gRPC. They take turns. It builds the HNSW indexes after the items are stored, and prints
one JSON line after each part, in some minutes.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers.measurement import F32
from benchmarks.runs.pgvector import (
    BATCH_COUNT,
    DIMENSION,
    WRITER_COUNT,
    Call,
    K,
    item,
    items_table,
    recall,
    report,
    settings_of,
    shard_call,
    shards,
    soon,
    stored,
    times_ms,
)
from benchmarks.support.clustered_vectors import Source
from benchmarks.support.loads.growth import tree_cpu_seconds
from tandem.remote.pgvector.connections import Connections, Session
from tandem.stages.items import ItemRecord
from tandem.stages.shard import Shard
from tests.support.engines.postgres import Postgres, running_postgres

CLIENT_COUNT, SEARCH_COUNT, TURN_COUNT = 16, 200, 5


async def fill(postgres: Postgres, shard: Shard, items: Sequence[ItemRecord]) -> None:
    """Stores the items, then builds the HNSW indexes."""
    await stored(shard, items[:1], 1, 1)
    indexes = "FROM pg_indexes WHERE indexdef LIKE '%hnsw%'"
    made = postgres.execute(f"SELECT indexdef {indexes}").splitlines()
    for name in postgres.execute(f"SELECT schemaname || '.' || indexname {indexes}").split():
        postgres.execute(f"DROP INDEX {name}")
    await stored(shard, items[1:], WRITER_COUNT, BATCH_COUNT)
    for each in made:
        postgres.execute(f"SET maintenance_work_mem = '1GB'; {each}")
    postgres.execute("VACUUM ANALYZE")


def raw_call(connections: Connections, table: str) -> Call:
    statement = (
        f"SELECT id, embedding <#> %(query)s::vector AS distance FROM {table} WHERE modality = 1 "
        f"ORDER BY embedding <#> %(query)s::vector LIMIT {K}"
    ).encode()

    async def call(embedding: F32) -> Sequence[str]:
        async def found(session: Session) -> Sequence[str]:
            rows = await session.connection.execute(statement, {"query": embedding}, binary=True)
            return [item_id for item_id, _ in await rows.fetchall()]

        return await connections.run(found, soon(), "a raw call")

    return call


async def rate(call: Call, queries: F32, client_count: int) -> float:
    """Returns the searches a second of `client_count` clients."""
    waiting = iter(queries)

    async def client() -> None:
        for each in waiting:
            await call(each)

    start_time = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(client_count)))
    return len(queries) / (time.perf_counter() - start_time)


async def compare(calls: Mapping[str, Call], queries: F32, pids: Mapping[str, int]) -> None:
    """Reports p50s of one client, then rates and CPU of a search of several, in alternation.

    CPU is that of the processes `pids`, and of this one, the caller.
    """
    p50s: dict[str, list[float]] = {name: [] for name in calls}
    rates: dict[str, list[float]] = {name: [] for name in calls}
    cpu_ms: dict[str, list[np.ndarray]] = {name: [] for name in calls}
    for _ in range(TURN_COUNT):
        for name, call in calls.items():
            p50s[name].append(float(np.median(await times_ms(call, queries[:SEARCH_COUNT]))))
        for name, call in calls.items():
            before = np.array([*map(tree_cpu_seconds, pids.values()), time.process_time()])
            rates[name].append(await rate(call, queries, CLIENT_COUNT))
            after = np.array([*map(tree_cpu_seconds, pids.values()), time.process_time()])
            cpu_ms[name].append((after - before) * 1_000 / len(queries))
    for name in calls:
        used = zip([*pids, "caller"], np.median(cpu_ms[name], axis=0), strict=True)
        report(
            name,
            p50_ms=np.median(p50s[name]),
            p50_ms_over_raw=np.median(np.subtract(p50s[name], p50s["raw"])),
            searches_a_second=np.median(rates[name]),
            rate_of_raw=np.median(np.divide(rates[name], rates["raw"])),
            cpu_ms=dict(used),
            p50_turns=p50s[name],
            rate_turns=rates[name],
        )


async def run(postgres: Postgres, item_count: int) -> None:
    source = Source(item_count, 1, DIMENSION)
    embeddings, queries = source.draw(item_count), source.draw(1_000)
    connections = Connections(settings_of(postgres), postgres.url())
    async with shards(postgres) as (here, served, process):
        await fill(postgres, here, [item(n, each) for n, each in enumerate(embeddings)])
        raw = raw_call(connections, items_table(postgres))
        calls = {"raw": raw, "shard": shard_call(here), "index_svc": shard_call(served)}
        every = np.ones(item_count, bool)
        for name in ("raw", "index_svc"):
            found = await recall(calls[name], queries[:200], embeddings, every)
            report("recall", call=name, recall=found)
        await compare(calls, queries, {"postgres": postgres.pid, "index_svc": process.pid})
        await connections.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--work", type=Path, help="where the server's folder is made")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.work))
    try:
        with running_postgres(folder / "data", shared_buffers="1GB") as postgres:
            report("server", version=postgres.execute("SHOW server_version"))
            asyncio.run(run(postgres, arguments.items))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
