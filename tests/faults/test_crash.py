"""Tests that writes acknowledged by index_svc survive `kill -9` at any moment."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from tandem.contract.limits import MAX_UPSERT_ITEM_COUNT
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Committed, Upsert
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire import embedding_to_proto
from tests.support.faults.history import Finding, FindingKind, History, Outcome
from tests.support.faults.observation import observe
from tests.support.faults.run_counts import is_full
from tests.support.faults.sabotaged_index import sabotaged
from tests.support.faults.summary import median, report
from tests.support.faults.traffic import Traffic
from tests.support.index_svc.encoded_items import INDEX_ID, search_request, upsert_request
from tests.support.index_svc.shard_process import SNAPSHOT_OFTEN, ShardProcess, running
from tests.support.item_store.made_items import FINGERPRINT, text_item, unit_vector

pytestmark = pytest.mark.xdist_group("faults")

# From a kill before the first answer to one amid steady writing.
MAX_DELAY_SECONDS = 0.4
# The share of kills before which at least one snapshot must have been written.
LEAST_SNAPSHOT_SHARE = 0.2
# The quick run shares the machine with other tests, which may take most of it.
READY_SECONDS = 10.0 if is_full() else 60.0


@dataclass(slots=True)
class CrashRun:
    """Reports the outcome of a number of kills."""

    traffic: Traffic
    findings: list[Finding] = field(default_factory=list)
    ready_seconds: list[float] = field(default_factory=list)
    snapshots: set[str] = field(default_factory=set)
    """Names of those seen after a kill."""


@pytest.mark.runs(quick=12, full=1000, seconds_each=6)
async def test_acknowledged_writes_survive_kills(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """After many kills during writes nothing is missing, duplicate, phantom or malformed."""
    start_time = time.monotonic()

    run = await crash(tmp_path / "shard", rng, runs)

    report("crash", start_time, run.findings, **figures(run, runs))
    assert run.findings == []
    run.traffic.check_floor()
    assert set(run.traffic.failures) <= {"UNAVAILABLE"}  # the connection was lost
    assert len(run.snapshots) >= (LEAST_SNAPSHOT_SHARE * runs if is_full() else 1)
    assert max(run.ready_seconds) <= READY_SECONDS


# A control of the tests, not of the product.
@pytest.mark.slow
@pytest.mark.runs(quick=4, full=25, seconds_each=12)
async def test_control_acknowledging_early_is_seen(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """Positive control: a service that commits after its answer is found.

    Nearly every kill finds it; one may come when every answered write is committed, so the quick
    run continues to the first that finds it.
    """
    start_time = time.monotonic()
    caught_count = 0
    for number in range(runs):
        run = await crash(
            tmp_path / f"shard-{number}",
            rng,
            1,
            min_delay_seconds=MAX_DELAY_SECONDS,
            **sabotaged("early"),
        )
        caught_count += any(fault.kind is FindingKind.MISSING for fault in run.findings)
        if caught_count and not is_full():
            break

    report("crash-control-early", start_time, runs=number + 1, caught=caught_count)
    assert caught_count >= (0.8 * runs if is_full() else 1)


@pytest.mark.slow
@pytest.mark.runs(quick=2, full=20, seconds_each=60)
async def test_a_large_shard_is_ready_in_time(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """After a kill during writes a shard of many items serves all of them within 10 s."""
    start_time = time.monotonic()
    item_count, dimension = (100_000, 384) if is_full() else (5_000, 384)
    path = tmp_path / "shard"
    fill(path, item_count, dimension)
    ready_seconds = []
    for _ in range(runs):
        async with running(path, settings={"STORE_MAP_BYTES": 4 << 30}) as (process, channel):
            ready_seconds.append(process.ready_seconds)
            stub = IndexServiceStub(channel)
            for number in rng.sample(range(item_count), 20):
                request = search_request([], k=1)
                request.queries.append(embedding_to_proto(unit_vector(number, dimension)))
                response = await stub.SearchEmbeddings(request, timeout=60)
                assert [hit.item_id for hit in response.hit_lists[0].hits] == [f"item-{number}"]
            upsert = asyncio.create_task(_upsert_on(stub, dimension))
            await asyncio.sleep(rng.uniform(0, MAX_DELAY_SECONDS))
            process.kill()
            await upsert

    report(
        "ready",
        start_time,
        runs=runs,
        items=item_count,
        dimension=dimension,
        ready_p50_seconds=median(ready_seconds),
        ready_max_seconds=round(max(ready_seconds), 3),
    )
    assert max(ready_seconds) <= READY_SECONDS


def fill(path: Path, item_count: int, dimension: int) -> None:
    """Makes a store of so many texts."""
    store = ItemStore.open(path, 0, 1, map_bytes=4 << 30)
    for start in range(0, item_count, MAX_UPSERT_ITEM_COUNT):
        numbers = range(start, min(start + MAX_UPSERT_ITEM_COUNT, item_count))
        items = [text_item(f"item-{number}", number, dimension) for number in numbers]
        (outcome,) = store.apply([Upsert(INDEX_ID, FINGERPRINT, items)])
        assert isinstance(outcome, Committed)
    store.close()


async def _upsert_on(stub: IndexServiceStub, dimension: int) -> None:
    """Upserts one item repeatedly until the service is gone."""
    while True:
        try:
            request = upsert_request([text_item("busy", 10**8, dimension)])
            await stub.UpsertItems(request, timeout=60)
        except grpc.aio.AioRpcError:
            return


async def crash(
    path: Path,
    rng: random.Random,
    kill_count: int,
    *,
    min_delay_seconds: float = 0.0,
    module: str = "index_svc",
    environment: Mapping[str, str] | None = None,
) -> CrashRun:
    """Repeatedly starts the shard, checks it, writes to it and kills it."""
    run = CrashRun(Traffic(History(), rng))
    history = run.traffic.history
    for number in range(kill_count + 1):
        run.snapshots |= snapshot_names(path)
        async with running(
            path, settings=SNAPSHOT_OFTEN, module=module, environment=environment
        ) as (process, channel):
            run.ready_seconds.append(process.ready_seconds)
            stub = IndexServiceStub(channel)
            observed = await observe(path, stub)
            run.findings += [
                *observed.findings,
                *history.findings(observed.versions, observed.sequence),
                *run.traffic.findings,
            ]
            if run.findings or number == kill_count:
                return run
            history.settle(observed.versions, observed.sequence)
            delay_seconds = rng.uniform(min_delay_seconds, MAX_DELAY_SECONDS)
            await write_until_killed(process, stub, run.traffic, delay_seconds)
    return run


def snapshot_names(path: Path) -> set[str]:
    """Returns the names of the snapshots in a shard's folder, finished or not."""
    return {snapshot.name for snapshot in path.glob("snapshots/*/*-*")}


async def write_until_killed(
    process: ShardProcess, stub: IndexServiceStub, traffic: Traffic, delay_seconds: float
) -> None:
    """Writes from several clients and kills the shard after a while."""
    async with traffic.flowing(stub):
        await asyncio.sleep(delay_seconds)
        process.kill()


def figures(run: CrashRun, kill_count: int) -> dict[str, object]:
    """Returns the figures of a run to report."""
    return {
        "kills": kill_count,
        "writes": run.traffic.answered_count,
        "unknown": run.traffic.history.outcome_counts[Outcome.UNKNOWN],
        "writes_per_second": round(run.traffic.answered_count / max(run.traffic.seconds, 1e-9)),
        "snapshots": len(run.snapshots),
        "searches": len(run.traffic.search_seconds),
        "ready_p50_seconds": median(run.ready_seconds),
        "ready_max_seconds": round(max(run.ready_seconds), 3),
    }
