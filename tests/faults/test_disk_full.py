"""Fills the disk: writes fail with STORE_FULL, reads work, and writes resume once there is room."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.faults.condition import wait_until
from tests.support.faults.history import Finding, FindingKind, History
from tests.support.faults.observation import observe
from tests.support.faults.run_counts import is_full
from tests.support.faults.sabotaged_index import sabotaged
from tests.support.faults.small_disk import SmallDisk
from tests.support.faults.summary import median, report
from tests.support.faults.traffic import Traffic
from tests.support.index_svc.shard_process import SNAPSHOT_OFTEN, running

pytestmark = [
    pytest.mark.xdist_group("faults"),
    pytest.mark.skipif(bool(SmallDisk.why_not()), reason=SmallDisk.why_not() or ""),
]

DISK_BYTES = 48 << 20
# More than the disk: it is the disk that fills up, not the map.
MAP_BYTES = 256 << 20
# What may be left when the disk is said to be full: a commit then fails half-way.
MAX_LEFT_BYTES = 2 << 20
GROWN_BYTES = 48 << 10
# The quick run shares the machine with other tests, which may take most of it.
RESUME_SECONDS = 5.0 if is_full() else 60.0
FULL = "RESOURCE_EXHAUSTED STORE_FULL"
FLOOR_WRITES_PER_SECOND = 10.0


@pytest.mark.runs(quick=1, full=20, seconds_each=40)
async def test_a_full_disk_stops_only_writes(tmp_path: Path, rng: random.Random, runs: int) -> None:
    """In each round only STORE_FULL fails, every search succeeds, and nothing is lost."""
    start_time = time.monotonic()
    traffic = Traffic(History(), rng, padding_bytes=1000)
    findings: list[Finding] = []
    resume_seconds: list[float] = []
    with SmallDisk(tmp_path / "disk", DISK_BYTES) as disk:
        path = disk.path / "shard"
        settings = {"STORE_MAP_BYTES": MAP_BYTES, **SNAPSHOT_OFTEN}
        async with running(path, settings=settings, log_path=tmp_path / "log") as (shard, channel):
            stub = IndexServiceStub(channel)
            for number in range(runs):
                resume_seconds.append(await fill_and_empty(disk, stub, traffic, rng, number))
                observed = await observe(path, stub)
                findings += [
                    *observed.findings,
                    *traffic.history.findings(observed.versions, observed.sequence),
                    *traffic.findings,
                ]
                traffic.history.settle(observed.versions, observed.sequence)
            assert shard.ending() is None

    report(
        "disk-full",
        start_time,
        findings,
        runs=runs,
        writes=traffic.answered_count,
        failures=dict(traffic.failures),
        searches=len(traffic.search_seconds),
        search_failures=dict(traffic.search_failures),
        resume_p50_seconds=median(resume_seconds),
        resume_max_seconds=round(max(resume_seconds), 3),
    )
    assert findings == []
    assert traffic.search_failures == {}
    assert set(traffic.failures) == {FULL}
    assert max(resume_seconds) <= RESUME_SECONDS
    assert len(traffic.search_seconds) >= 10 * runs
    # Most of a round nothing can be written, so the usual floor would ask too much.
    traffic.check_floor(FLOOR_WRITES_PER_SECOND)


# A control of the tests, not of the product.
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_control_acknowledging_early_is_seen(tmp_path: Path, rng: random.Random) -> None:
    """Positive control: a full disk finds a service that commits after its answer."""
    await holds_with_longer_times(lambda factor: check_early_is_seen(tmp_path, rng, factor))


async def check_early_is_seen(tmp_path: Path, rng: random.Random, factor: float) -> None:
    """Where it writes for so many times as long."""
    traffic = Traffic(History(), rng, padding_bytes=GROWN_BYTES)
    with SmallDisk(tmp_path / f"disk-{factor}", DISK_BYTES) as disk:
        path = disk.path / "shard"
        options = {"log_path": tmp_path / f"log-{factor}", **sabotaged("early")}
        async with running(path, settings={"STORE_MAP_BYTES": MAP_BYTES}, **options) as (
            _,
            channel,
        ):
            stub = IndexServiceStub(channel)
            async with traffic.flowing(stub, stop_at_failure=False):
                await asyncio.sleep(0.3 * factor)
                disk.fill()
                await asyncio.sleep(1.0 * factor)
            observed = await observe(path, stub)

    findings = traffic.history.findings(observed.versions, observed.sequence)
    assert FindingKind.MISSING in {fault.kind for fault in findings}


async def fill_and_empty(
    disk: SmallDisk, stub: IndexServiceStub, traffic: Traffic, rng: random.Random, number: int
) -> float:
    """Fills the disk during writes and frees it; returns how long writes took to resume."""
    async with traffic.flowing(stub, stop_at_failure=False):
        await asyncio.sleep(0.3)
        disk.fill(left_bytes=rng.randint(0, MAX_LEFT_BYTES))
        grown_ids = await grow_until_full(stub, traffic, number)
        failed_count = traffic.failures[FULL]
        await wait_until(
            lambda: traffic.failures[FULL] > failed_count, 60, "writers meet the full disk"
        )
        await asyncio.sleep(0.3)

        disk.empty()
        answered_count = traffic.answered_count
        seconds = await wait_until(
            lambda: traffic.answered_count > answered_count, RESUME_SECONDS, "writes resume"
        )
    for start in range(0, len(grown_ids), 200):
        why = await traffic.write(stub, dict.fromkeys(grown_ids[start : start + 200]))
        assert why is None
    return seconds


async def grow_until_full(stub: IndexServiceStub, traffic: Traffic, number: int) -> list[str]:
    """Adds items until three writes in a row found the disk full; returns their ids."""
    item_ids: list[str] = []
    usual_bytes = traffic.padding_bytes
    # Smaller items still find room in pages freed before, so go down to the usual size.
    for padding_bytes in (GROWN_BYTES, GROWN_BYTES // 8, usual_bytes):
        traffic.padding_bytes = padding_bytes
        full_count = 0
        while full_count < 3:
            new_ids = [f"grown-{number}-{len(item_ids) + n}" for n in range(8)]
            batch = {item_id: traffic.next_version() for item_id in new_ids}
            item_ids += new_ids
            why = await traffic.write(stub, batch)
            assert why in (None, FULL), why
            full_count = full_count + 1 if why else 0
            assert len(item_ids) < 10_000, "the disk does not fill up"
    return item_ids
