"""Fails syncs: no acknowledged write is lost, and writes resume without a restart."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.faults.condition import wait_until
from tests.support.faults.history import FindingKind, History
from tests.support.faults.observation import observe
from tests.support.faults.power_cut_disk import PowerCutDisk
from tests.support.faults.run_counts import is_full
from tests.support.faults.sabotaged_index import sabotaged
from tests.support.faults.summary import median, report
from tests.support.faults.traffic import Traffic
from tests.support.faults.volatile_files import Loss
from tests.support.index_svc.shard_process import running

pytestmark = [
    pytest.mark.xdist_group("faults"),
    pytest.mark.skipif(bool(PowerCutDisk.why_not()), reason=PowerCutDisk.why_not() or ""),
]

ERROR_RATE = 0.01
# The quick run shares the machine with other tests, which may take most of it.
RESUME_SECONDS = 5.0 if is_full() else 60.0
# Each round ends in a power cut, after so many failed syncs.
ERRORS_PER_ROUND = 3


@pytest.mark.runs(quick=1, full=25, seconds_each=60)
async def test_nothing_acknowledged_is_lost_by_failed_syncs(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """One sync in 100 fails and drops its pages, then power is cut: there are no findings.

    Each failure is UNAVAILABLE for its callers, and writes succeed 5 s later without a restart.
    """
    start_time = time.monotonic()
    traffic = Traffic(History(), rng)
    error_count = 0
    resume_seconds: list[float] = []
    with PowerCutDisk(tmp_path / "disk") as disk:
        path = disk.path / "shard"
        for number in range(runs + 1):
            async with running(path, log_path=tmp_path / "log") as (shard, channel):
                stub = IndexServiceStub(channel)
                observed = await observe(path, stub)
                findings = [
                    *observed.findings,
                    *traffic.history.findings(observed.versions, observed.sequence),
                    *traffic.findings,
                ]
                assert findings == []
                if number == runs:
                    break
                traffic.history.settle(observed.versions, observed.sequence)
                resume_seconds += await write_through_errors(disk, stub, traffic, rng)
                error_count += sum(not is_ok for _, _, is_ok in disk.take_syncs())
                assert shard.ending() is None
                disk.cut_power(rng.choice(list(Loss)), rng)

    report(
        "fsync-error",
        start_time,
        runs=runs,
        failed_syncs=error_count,
        writes=traffic.answered_count,
        failures=dict(traffic.failures),
        search_failures=dict(traffic.search_failures),
        resume_p50_seconds=median(resume_seconds),
        resume_max_seconds=round(max(resume_seconds), 3),
    )
    assert all(failure.startswith("UNAVAILABLE") for failure in traffic.failures)
    assert traffic.search_failures == {}
    assert error_count >= ERRORS_PER_ROUND * runs
    # Nothing is written while the store is reopened, so the usual floor would be too high.
    traffic.check_floor(15.0)


# A control of the tests, not of the product.
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_control_acknowledging_failed_syncs_is_seen(
    tmp_path: Path, rng: random.Random
) -> None:
    """Positive control: a power cut finds a service that ignores failed commits."""
    traffic = Traffic(History(), rng)
    options: dict[str, Any] = {"log_path": tmp_path / "log"}
    with PowerCutDisk(tmp_path / "disk") as disk:
        path = disk.path / "shard"
        async with running(path, **options, **sabotaged("deaf")) as (_, channel):
            async with traffic.flowing(IndexServiceStub(channel), stop_at_failure=False):
                await asyncio.sleep(0.3)
                disk.set_faults(rng, error_rate=0.1)
                await asyncio.sleep(1.0)
            disk.set_faults(rng)
            disk.cut_power(Loss.DROP, rng)
        async with running(path, **options) as (_, channel):
            observed = await observe(path, IndexServiceStub(channel))

    findings = traffic.history.findings(observed.versions, observed.sequence)
    assert FindingKind.MISSING in {fault.kind for fault in findings}


async def write_through_errors(
    disk: PowerCutDisk, stub: IndexServiceStub, traffic: Traffic, rng: random.Random
) -> list[float]:
    """Writes until enough syncs failed; returns how long each took to recover from."""
    resume_seconds = []
    disk.set_faults(rng, error_rate=ERROR_RATE)
    async with traffic.flowing(stub, stop_at_failure=False):
        for _ in range(ERRORS_PER_ROUND):
            failed_count = traffic.failures.total()
            await wait_until(lambda: traffic.failures.total() > failed_count, 90, "a sync fails")  # noqa: B023
            answered_count = traffic.answered_count
            resume_seconds.append(
                await wait_until(
                    lambda: traffic.answered_count > answered_count,  # noqa: B023
                    RESUME_SECONDS,
                    f"writes resume after a failed sync ({dict(traffic.failures)})",
                )
            )
    disk.set_faults(rng)
    return resume_seconds
