"""What index_svc acknowledged survives `kill -9` at any moment."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.faults.history import Fault, FaultKind, History, Outcome
from tests.faults.observation import observe
from tests.faults.sabotaged_index import VARIABLE
from tests.faults.summary import median, report
from tests.faults.traffic import Traffic
from tests.index_svc.shard_process import ShardProcess, running

pytestmark = pytest.mark.xdist_group("faults")

# From a kill before the first answer to one amid steady writing.
MAX_DELAY_SECONDS = 0.3
READY_SECONDS = 10.0


@dataclass(slots=True)
class CrashRun:
    """What came of a number of kills."""

    traffic: Traffic
    faults: list[Fault] = field(default_factory=list)
    ready_seconds: list[float] = field(default_factory=list)


@pytest.mark.runs(quick=50, full=1000, seconds_each=6)
async def test_acknowledged_writes_survive_kills(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """Over many kills amid writes: nothing is missing, duplicate, phantom or malformed."""
    start_time = time.monotonic()

    run = await crash(tmp_path / "shard", rng, runs)

    report("crash", start_time, run.faults, **figures(run, runs))
    assert run.faults == []
    run.traffic.check_floor()
    assert set(run.traffic.failures) <= {"UNAVAILABLE"}  # the connection was lost
    assert max(run.ready_seconds) <= READY_SECONDS


@pytest.mark.runs(quick=3, full=25, seconds_each=12)
async def test_control_acknowledging_early_is_seen(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """Positive control: a service that commits after it answered is found out by its first kill."""
    start_time = time.monotonic()
    caught_count = 0
    for number in range(runs):
        run = await crash(
            tmp_path / f"shard-{number}",
            rng,
            1,
            min_delay_seconds=MAX_DELAY_SECONDS,
            module="tests.faults.sabotaged_index",
            environment={VARIABLE: "early"},
        )
        caught_count += any(fault.kind is FaultKind.MISSING for fault in run.faults)
        print(*run.faults, run.traffic.failures, sep="\n")

    report("crash-control-early", start_time, runs=runs, caught=caught_count)
    assert caught_count == runs


async def crash(
    path: Path,
    rng: random.Random,
    kill_count: int,
    *,
    min_delay_seconds: float = 0.0,
    module: str = "index_svc",
    environment: Mapping[str, str] | None = None,
) -> CrashRun:
    """Starts the shard, looks at what it holds, writes to it and kills it, again and again."""
    run = CrashRun(Traffic(History(), rng))
    history = run.traffic.history
    for number in range(kill_count + 1):
        async with running(path, module=module, environment=environment) as (process, channel):
            run.ready_seconds.append(process.ready_seconds)
            stub = IndexServiceStub(channel)
            observed = await observe(path, stub)
            run.faults += [
                *observed.faults,
                *history.faults(observed.versions, observed.sequence),
                *run.traffic.faults,
            ]
            if run.faults or number == kill_count:
                return run
            history.settle(observed.versions, observed.sequence)
            delay_seconds = rng.uniform(min_delay_seconds, MAX_DELAY_SECONDS)
            await write_until_killed(process, stub, run.traffic, delay_seconds)
    return run


async def write_until_killed(
    process: ShardProcess, stub: IndexServiceStub, traffic: Traffic, delay_seconds: float
) -> None:
    """Writes to the shard from several sides and kills it after a while."""
    async with traffic.flowing(stub):
        await asyncio.sleep(delay_seconds)
        process.kill()


def figures(run: CrashRun, kill_count: int) -> dict[str, object]:
    """Returns what to report of a run."""
    return {
        "kills": kill_count,
        "writes": run.traffic.answered_count,
        "unknown": run.traffic.history.outcome_counts[Outcome.UNKNOWN],
        "writes_per_second": round(run.traffic.answered_count / max(run.traffic.seconds, 1e-9)),
        "searches": len(run.traffic.search_seconds),
        "ready_p50_seconds": median(run.ready_seconds),
        "ready_max_seconds": round(max(run.ready_seconds), 3),
    }
