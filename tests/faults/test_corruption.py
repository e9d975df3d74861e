"""Damages files: index_svc must exit by itself or serve what was written."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from tandem.contract.content import Modality
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Upsert
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.faults.condition import wait_until
from tests.support.faults.damage import Damage, damage
from tests.support.faults.history import FindingKind, History, Version
from tests.support.faults.observation import observe, observe_served
from tests.support.faults.summary import report
from tests.support.faults.supervisor import Ending
from tests.support.faults.traffic import Traffic
from tests.support.faults.versioned_item import versioned_item
from tests.support.index_svc.encoded_items import INDEX_ID
from tests.support.index_svc.shard_process import (
    SNAPSHOT_OFTEN,
    ShardNotReady,
    ShardProcess,
    running,
)
from tests.support.item_store.made_items import FINGERPRINT

pytestmark = pytest.mark.xdist_group("faults")

# Each kind comes early, so that a short run has them all.
STORE_DAMAGES = [Damage.FLIP, Damage.ZERO, Damage.CUT, Damage.META] * 2 + [Damage.FLIP, Damage.ZERO]
SNAPSHOT_DAMAGES = [Damage.FLIP, Damage.ZERO, Damage.CUT] * 3 + [Damage.FLIP]
# LMDB has two meta pages without a checksum. Where the newer is damaged it may take the older, and
# is back at the last commit but one; so the last commits write this item, which is not judged.
LAST_ID = "last"


@dataclass(frozen=True, slots=True)
class Sound:
    """Holds a closed shard's files and the versions of its items."""

    path: Path
    versions: Mapping[str, Version]
    last_version: int


@dataclass(slots=True)
class CorruptionRun:
    """Reports the outcome for a number of damaged shards."""

    outcomes: Counter[str] = field(default_factory=Counter)
    deaths: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    set_back_count: int = 0
    refused_snapshot_count: int = 0


@pytest.mark.runs(quick=4, full=1000, seconds_each=35)
async def test_a_damaged_store_gives_no_wrong_value(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """With flipped bits, zeroed pages and cut files, no value is wrong and no signal kills it."""
    start_time = time.monotonic()
    sound = await make_shard(tmp_path, rng)

    run = CorruptionRun()
    for number in range(runs):
        await damage_and_start(sound, tmp_path, ["data.mdb"], STORE_DAMAGES[number % 10], rng, run)

    report_run("corrupt-store", start_time, runs, run)
    assert run.deaths == []
    assert run.wrong == []
    assert run.missing == []


@pytest.mark.runs(quick=3, full=1000, seconds_each=35)
async def test_a_damaged_snapshot_is_not_served(
    tmp_path: Path, rng: random.Random, runs: int
) -> None:
    """Any of its files may be damaged; all items are found all the same."""
    start_time = time.monotonic()
    sound = await make_shard(tmp_path, rng)
    files = [
        str(path.relative_to(sound.path))
        for path in sorted(sound.path.rglob("*"))
        if path.is_file() and "snapshots" in path.parts
    ]
    assert files

    run = CorruptionRun()
    for number in range(runs):
        await damage_and_start(sound, tmp_path, files, SNAPSHOT_DAMAGES[number % 10], rng, run)

    report_run("corrupt-snapshot", start_time, runs, run)
    assert run.outcomes == {"served all": runs}
    # A flipped bit between the words of a manifest changes nothing that is read.
    assert run.refused_snapshot_count >= runs - max(1, runs // 10)


# A control of the tests, not of the product.
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_control_a_changed_value_is_seen(tmp_path: Path, rng: random.Random) -> None:
    """Positive control: values changed, deleted and added with correct checksums are reported."""
    sound = await make_shard(tmp_path, rng)
    changed, *_ = (item_id for item_id, version in sound.versions.items() if version)
    store = ItemStore.open(sound.path, 0, 1)
    store.apply([Upsert(INDEX_ID, FINGERPRINT, [versioned_item(changed, 10**6)])])
    store.close()

    run = CorruptionRun()
    async with running(sound.path) as (process, channel):
        await judge(process, IndexServiceStub(channel), sound, run, "nothing damaged")

    assert run.outcomes == {"served": 1}
    assert len(run.wrong) == 1
    assert changed in run.wrong[0]


async def make_shard(folder: Path, rng: random.Random) -> Sound:
    """Fills a shard's files and closes them."""
    path = folder / "sound" / "shard"
    path.parent.mkdir()
    traffic = Traffic(History(), rng, item_count=300, padding_bytes=1500)
    async with running(path, settings=SNAPSHOT_OFTEN) as (process, channel):
        stub = IndexServiceStub(channel)
        async with traffic.flowing(stub):
            await wait_until(lambda: traffic.answered_count >= 150, 60, "150 writes are answered")
        for _ in range(3):
            last_version = traffic.next_version()
            assert await traffic.write(stub, {LAST_ID: last_version}) is None
        await wait_until(
            lambda: all(any(path.glob(f"snapshots/*/{kind.value}-*[0-9]/*")) for kind in Modality),
            60,
            "there are snapshots of texts and of images",
        )
        observed = await observe(path, stub)
        assert traffic.history.findings(observed.versions, observed.sequence) == []
        assert process.terminate() == Ending(exit_code=0)
    versions = {item_id: v for item_id, v in observed.versions.items() if item_id != LAST_ID}
    assert len(versions) > 100, "too few items to prove much"
    return Sound(path, versions, last_version)


async def damage_and_start(
    sound: Sound,
    folder: Path,
    files: Sequence[str],
    kind: Damage,
    rng: random.Random,
    run: CorruptionRun,
) -> None:
    """Damages a file in a copy, starts the service on it and judges its answers."""
    path = folder / "damaged" / "shard"
    shutil.copytree(sound.path, path)
    done = f"{kind.value}: {damage(path / rng.choice(files), kind, rng)}"
    process = ShardProcess(path)
    try:
        try:
            async with await process.ready() as channel:
                await judge(process, IndexServiceStub(channel), sound, run, done)
        except ShardNotReady:
            ending = process.ending()
            if '"shard corrupt"' in process.log():
                run.outcomes["said to be corrupt"] += 1
            elif ending is None:
                run.outcomes["not ready"] += 1
            elif ending.killed_by:
                run.outcomes["died"] += 1
                run.deaths.append(f"{done}: {ending.killed_by.name} at the start")
            else:
                run.outcomes["refused to start"] += 1
    finally:
        run.refused_snapshot_count += '"snapshot refused"' in process.log()
        process.kill()
        shutil.rmtree(path.parent)


async def judge(
    process: ShardProcess, stub: IndexServiceStub, sound: Sound, run: CorruptionRun, done: str
) -> None:
    """Compares what the service returns with what was written."""
    try:
        observed = await observe_served(stub, [*sound.versions, LAST_ID])
    except grpc.aio.AioRpcError as error:
        ending = process.ending() if error.code() is not grpc.StatusCode.UNAVAILABLE else None
        if error.code() is grpc.StatusCode.UNAVAILABLE:  # it ends, or did
            ending = process.wait(5)
        if ending is not None and ending.killed_by:
            run.outcomes["died"] += 1
            run.deaths.append(f"{done}: {ending.killed_by.name} while serving")
        elif error.code() is grpc.StatusCode.NOT_FOUND:
            run.outcomes["served"] += 1
            run.missing.append(f"{done}: the whole index")
        else:
            run.outcomes["refused calls"] += 1
        return
    named = {fault.item_id for fault in observed.findings if fault.kind is FindingKind.MALFORMED}
    # A verified snapshot may still find an item whose record is said to be damaged.
    wrong = [
        finding
        for finding in observed.findings
        if finding.kind is not FindingKind.MALFORMED and finding.item_id not in named
    ]
    if named:  # then the number of items searched is not a promise
        wrong = [finding for finding in wrong if finding.item_id]
    wrong_ids = [i for i, v in sound.versions.items() if observed.versions.get(i, v) != v]
    missing_ids = [i for i in sound.versions if i not in observed.versions and i not in named]
    last_version = observed.versions.get(LAST_ID)
    run.set_back_count += LAST_ID not in named and last_version != sound.last_version
    if wrong or wrong_ids:
        run.wrong.append(f"{done}: {wrong_ids} {wrong}")
    if missing_ids:
        run.missing.append(f"{done}: {missing_ids}")
    is_all = not (wrong or wrong_ids or missing_ids or named)
    run.outcomes["served all" if is_all else "served"] += 1


def report_run(test: str, start_time: float, runs: int, run: CorruptionRun) -> None:
    """Prints the outcome for the damaged shards."""
    print(*run.deaths, *run.wrong, *run.missing, sep="\n")
    report(
        test,
        start_time,
        runs=runs,
        outcomes=dict(run.outcomes),
        died=len(run.deaths),
        wrong=len(run.wrong),
        silently_missing=len(run.missing),
        refused_snapshots=run.refused_snapshot_count,
        set_back_one_commit=run.set_back_count,
    )
