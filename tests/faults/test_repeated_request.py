"""Tests that a write whose answer was lost is executed once when it is repeated."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tandem.chassis.calls.channels import open_channel
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.faults.history import Finding, FindingKind, History, Outcome
from tests.support.faults.observation import observe
from tests.support.faults.proxy import Proxy
from tests.support.faults.sabotaged_index import sabotaged
from tests.support.faults.summary import report
from tests.support.faults.traffic import Traffic
from tests.support.index_svc.shard_process import ShardProcess, running

pytestmark = pytest.mark.xdist_group("faults")


@pytest.mark.runs(quick=6, full=1000, seconds_each=10)
async def test_a_repeated_request_is_carried_out_once(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """Answers are dropped, and half the time the service is killed too; each call is repeated."""
    start_time = time.monotonic()
    traffic = Traffic(History(), rng)

    findings, counts = await repeat_often(tmp_path / "shard", traffic, runs)

    report("repeated-request", start_time, findings, writes=traffic.answered_count, **counts)
    assert findings == []
    # A share of the time answers vanish, so the usual floor would ask too much.
    traffic.check_floor(25.0)


# A control of the tests, not of the product.
@pytest.mark.slow
async def test_control_a_forgotten_request_is_seen(tmp_path: Path, rng: random.Random) -> None:
    """Positive control: a service without request ids makes each change twice."""
    traffic = Traffic(History(), rng)

    findings, _ = await repeat_often(tmp_path / "shard", traffic, 20, **sabotaged("forgetful"))

    assert FindingKind.DUPLICATE in {finding.kind for finding in findings}


async def repeat_often(
    path: Path,
    traffic: Traffic,
    repeat_count: int,
    **options: Any,
) -> tuple[list[Finding], Counter[str]]:
    """Loses answers and repeats calls, until there are enough repeats or findings."""
    findings: list[Finding] = []
    counts: Counter[str] = Counter()
    while counts["repeats"] < repeat_count and not findings:
        async with running(path, **options) as (process, channel):
            stub = IndexServiceStub(channel)
            while counts["repeats"] < repeat_count and not findings:
                findings += await repeat_unknown(path, stub, traffic, counts)
                counts["rounds"] += 1
                is_killed = traffic.rng.random() < 0.5
                await write_and_lose_answers(process, traffic, is_killed=is_killed)
                if is_killed:
                    counts["kills"] += 1
                    break
    return findings, counts


async def write_and_lose_answers(
    process: ShardProcess, traffic: Traffic, *, is_killed: bool
) -> None:
    """Writes for a while, and at the end drops all answers."""
    async with (
        Proxy(process.port, traffic.rng) as proxy,
        open_channel(f"127.0.0.1:{proxy.port}") as channel,
        traffic.flowing(IndexServiceStub(channel)),
    ):
        await asyncio.sleep(traffic.rng.uniform(0.05, 0.3))
        proxy.to_client.is_silent = True
        await asyncio.sleep(0.1)
        if is_killed:
            process.kill()
        proxy.refuse()


async def repeat_unknown(
    path: Path, stub: IndexServiceStub, traffic: Traffic, counts: Counter[str]
) -> list[Finding]:
    """Repeats each call of unknown outcome; returns the findings before and after."""
    history = traffic.history
    before = await observe(path, stub)
    findings = [*before.findings, *history.findings(before.versions, before.sequence)]
    for call in history.calls:
        if call.outcome is Outcome.UNKNOWN:
            why = await traffic.attempt(stub, call)
            assert why is None, why
            is_repeat = call.sequence <= before.sequence
            counts["repeats" if is_repeat else "late firsts"] += 1
    after = await observe(path, stub)
    # All are answered now, and counted once, in the order of the sequences of the answers.
    findings += [*after.findings, *history.findings(after.versions, after.sequence)]
    history.settle(after.versions, after.sequence)
    return findings
