"""Breaks the network to the service: calls end in time, and none is half executed."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from tandem.chassis.calls.channels import open_channel
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.faults.condition import wait_until
from tests.support.faults.history import Finding, History, Outcome
from tests.support.faults.observation import observe
from tests.support.faults.proxy import Direction, Proxy
from tests.support.faults.run_counts import is_full
from tests.support.faults.summary import median, report
from tests.support.faults.traffic import Traffic
from tests.support.index_svc.shard_process import running

pytestmark = pytest.mark.xdist_group("faults")

TIMEOUT_SECONDS = 1.0
# For a loaded machine: the deadline's timer is the client's own. The quick run shares the
# machine with other tests, which may take most of it.
OVERRUN_SECONDS = 0.5 if is_full() else 10.0
RECOVERY_SECONDS = 5.0 if is_full() else 60.0
FAULT_KINDS = ["cut", "refuse", "silence", "one-way", "slow"]


@pytest.mark.runs(quick=5, full=100, seconds_each=20)
async def test_a_broken_network_loses_nothing_acknowledged(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """Connections are cut, refused, silenced and slowed: no findings, and calls end."""
    start_time = time.monotonic()
    traffic = Traffic(History(), rng, timeout_seconds=TIMEOUT_SECONDS)
    history, path = traffic.history, tmp_path / "shard"
    findings: list[Finding] = []
    recovery_seconds: list[float] = []
    call_seconds: list[float] = []
    async with (
        running(path) as (process, direct),
        Proxy(process.port, rng) as proxy,
        open_channel(f"127.0.0.1:{proxy.port}") as channel,
    ):
        stub = IndexServiceStub(channel)
        for number in range(runs):
            async with traffic.flowing(stub, stop_at_failure=False):
                await asyncio.sleep(rng.uniform(0.1, 0.3))
                await disturb(proxy, FAULT_KINDS[number % len(FAULT_KINDS)], rng)
                answered_count = traffic.answered_count
                recovery_seconds.append(
                    await wait_until(
                        lambda: traffic.answered_count > answered_count,  # noqa: B023
                        RECOVERY_SECONDS,
                        "writes succeed again",
                    )
                )
            # A call that its caller gave up may still be in progress in the service.
            observed = await observe(path, IndexServiceStub(direct))
            findings += [
                *observed.findings,
                *history.findings(observed.versions, observed.sequence),
                *traffic.findings,
            ]
            call_seconds += [(call.end_time or 0) - call.start_time for call in history.calls]
            history.settle(observed.versions, observed.sequence)
        assert process.ending() is None

    report(
        "partition",
        start_time,
        findings,
        runs=runs,
        writes=traffic.answered_count,
        unknown=history.outcome_counts[Outcome.UNKNOWN],
        failures=dict(traffic.failures),
        longest_call_seconds=round(max(call_seconds), 3),
        recovery_p50_seconds=median(recovery_seconds),
        recovery_max_seconds=round(max(recovery_seconds), 3),
    )
    assert findings == []
    assert set(traffic.failures) <= {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    assert max(recovery_seconds) <= RECOVERY_SECONDS
    assert max(call_seconds) <= TIMEOUT_SECONDS + OVERRUN_SECONDS
    # Nothing is written while the network is broken, so the usual floor would ask too much.
    traffic.check_floor(10.0)


async def disturb(proxy: Proxy, kind: str, rng: random.Random) -> None:
    """Breaks the network in the named way for a while."""
    seconds = rng.uniform(0.2, 1.5 * TIMEOUT_SECONDS)
    match kind:
        case "cut":
            proxy.cut()
        case "refuse":
            proxy.refuse()
            await asyncio.sleep(seconds)
        case "silence":
            proxy.silence()
            await asyncio.sleep(seconds)
        case "one-way":
            direction = rng.choice([proxy.to_service, proxy.to_client])
            direction.is_silent = True
            await asyncio.sleep(seconds)
        case "slow":
            proxy.to_service = Direction(delay_seconds=0.05, jitter_seconds=0.05)
            proxy.to_client = Direction(delay_seconds=0.05, bytes_per_second=100_000)
            await asyncio.sleep(seconds)
    proxy.heal()
