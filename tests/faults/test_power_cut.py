"""Tests that writes acknowledged by index_svc survive power cuts."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.faults.history import Finding, History, Outcome
from tests.support.faults.observation import Observation, observe, observe_served
from tests.support.faults.power_cut_disk import PowerCutDisk
from tests.support.faults.run_counts import is_full
from tests.support.faults.sabotaged_index import sabotaged
from tests.support.faults.summary import median, report
from tests.support.faults.traffic import Traffic
from tests.support.faults.volatile_files import Loss
from tests.support.index_svc.shard_process import SNAPSHOT_OFTEN, ShardNotReady, running

pytestmark = [
    pytest.mark.xdist_group("faults"),
    pytest.mark.skipif(bool(PowerCutDisk.why_not()), reason=PowerCutDisk.why_not() or ""),
]

MAX_DELAY_SECONDS = 0.4
# Of each ten cuts four drop what was not synced, three keep some of it, three tear it: in turn, so
# that a short run has them all.
LOSSES = [Loss.DROP, Loss.SUBSET, Loss.TORN] * 3 + [Loss.DROP]


@dataclass(slots=True)
class PowerCutRun:
    """Reports the outcome of a number of power cuts."""

    traffic: Traffic
    cuts: list[Loss] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    ready_seconds: list[float] = field(default_factory=list)
    snapshots: set[str] = field(default_factory=set)
    """Names of those seen after a cut."""
    refusal: str | None = None
    """Why the service did not start, or answer, any more."""


@pytest.mark.runs(quick=4, full=500, seconds_each=8)
async def test_acknowledged_writes_survive_power_cuts(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """Many cuts drop, keep and tear unsynced writes: there are no findings."""
    start_time = time.monotonic()

    run = await cut_power_often(tmp_path, rng, [LOSSES[n % 10] for n in range(runs)])

    report(
        "power-cut",
        start_time,
        run.findings,
        cuts={loss.value: run.cuts.count(loss) for loss in Loss},
        writes=run.traffic.answered_count,
        unknown=run.traffic.history.outcome_counts[Outcome.UNKNOWN],
        writes_per_second=round(run.traffic.answered_count / run.traffic.seconds),
        snapshots=len(run.snapshots),
        ready_p50_seconds=median(run.ready_seconds),
        ready_max_seconds=round(max(run.ready_seconds), 3),
    )
    assert run.refusal is None
    assert run.findings == []
    run.traffic.check_floor()


# A control of the tests, not of the product.
@pytest.mark.slow
@pytest.mark.runs(quick=5, full=25, seconds_each=15)
async def test_control_unsynced_commits_are_seen(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """Positive control: with LMDB's sync=False at least 4 of 5 torn power cuts lose something.

    The quick run ends with the first that does.
    """
    start_time = time.monotonic()
    caught_count = 0
    for number in range(runs):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = await cut_power_often(
            folder,
            rng,
            [Loss.TORN],
            min_delay_seconds=MAX_DELAY_SECONDS,
            look=look_from_outside,
            **sabotaged("unsynced"),
        )
        caught_count += bool(run.findings) or run.refusal is not None
        if caught_count and not is_full():
            break

    report("power-cut-control-unsynced", start_time, runs=number + 1, caught=caught_count)
    assert caught_count >= (0.8 * runs if is_full() else 1)


Look = Callable[[Path, IndexServiceStub, History], Awaitable[Observation]]


async def look_everywhere(path: Path, stub: IndexServiceStub, history: History) -> Observation:
    """Reads the store, and calls the service."""
    return await observe(path, stub)


async def look_from_outside(path: Path, stub: IndexServiceStub, history: History) -> Observation:
    """Only calls the service: a damaged store may kill the process that opens it."""
    return await observe_served(stub, history.item_ids)


async def cut_power_often(
    folder: Path,
    rng: random.Random,
    losses: list[Loss],
    *,
    min_delay_seconds: float = 0.0,
    look: Look = look_everywhere,
    module: str = "index_svc",
    environment: Mapping[str, str] | None = None,
) -> PowerCutRun:
    """Repeatedly starts the shard, checks it, writes to it and cuts its power."""
    run = PowerCutRun(Traffic(History(), rng))
    history, snapshots = run.traffic.history, run.snapshots
    with PowerCutDisk(folder / "disk") as disk:
        path = disk.path / "shard"
        for loss in [*losses, None]:
            try:
                async with running(
                    path,
                    settings=SNAPSHOT_OFTEN,
                    module=module,
                    environment=environment,
                    log_path=folder / "shard.log",
                ) as (process, channel):
                    snapshots |= {snapshot.name for snapshot in path.glob("snapshots/*/*-*")}
                    run.ready_seconds.append(process.ready_seconds)
                    stub = IndexServiceStub(channel)
                    observed = await look(path, stub, history)
                    run.findings += [
                        *observed.findings,
                        *history.findings(observed.versions, observed.sequence or None),
                        *run.traffic.findings,
                    ]
                    if run.findings or loss is None:
                        return run
                    history.settle(observed.versions, observed.sequence)
                    async with run.traffic.flowing(stub):
                        await asyncio.sleep(rng.uniform(min_delay_seconds, MAX_DELAY_SECONDS))
                        disk.cut_power(loss, rng)
                        process.kill()
                    run.cuts.append(loss)
            except (ShardNotReady, grpc.aio.AioRpcError) as error:
                run.refusal = str(error)
                return run
    return run
