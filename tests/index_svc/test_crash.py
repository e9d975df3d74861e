"""What index_svc acknowledged survives `kill -9` at any moment."""

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from tandem.content import TextTokens
from tandem.corpus.item_store import ItemStore
from tandem.corpus.item_write import Committed, Delete, Upsert
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.corpus.made_items import FINGERPRINT, text_item
from tests.index_svc.encoded_items import INDEX_ID, search_request, upsert_request
from tests.index_svc.history import History, Version
from tests.index_svc.shard_process import ShardProcess

KILL_COUNT = 20
WRITER_COUNT = 4
IDS_PER_WRITER = 30
# From a kill before the first answer to one amid steady writing.
MAX_DELAY_SECONDS = 0.3
# Fewer answered batches over all rounds would prove little; a quiet machine gives some 800.
MIN_ANSWERED_COUNT = 200
TIMEOUT_SECONDS = 20
# No writer comes so far, so that no other item has the same embedding.
RAISED_VERSION = 10**6 + 1


@pytest.fixture
def rng() -> random.Random:
    """A fresh seed each run, printed with the failure; TANDEM_CRASH_SEED repeats it."""
    seed = int(os.environ.get("TANDEM_CRASH_SEED", random.SystemRandom().randrange(2**32)))
    print(f"repeat with TANDEM_CRASH_SEED={seed}")
    return random.Random(seed)


@pytest.mark.timeout(300)
async def test_acknowledged_writes_survive_kills(tmp_path: Path, rng: random.Random) -> None:
    """Over 20 kills amid writes: nothing answered is lost, nothing is half there or made up."""
    path = tmp_path / "shard"
    history, versions = History(), itertools.count(1)
    for _ in range(KILL_COUNT):
        async with running(path) as (process, stub):
            found = await look(path, stub, history.item_ids)
            assert history.faults(found) == []
            history.settle(found)
            delay_seconds = rng.uniform(0, MAX_DELAY_SECONDS)
            await write_until_killed(process, stub, history, versions, rng, delay_seconds)

    async with running(path) as (_, stub):
        assert history.faults(await look(path, stub, history.item_ids)) == []
    print(f"{history.answered_count} batches answered")
    assert history.answered_count >= MIN_ANSWERED_COUNT


@pytest.mark.timeout(120)
async def test_the_judge_sees_what_went_wrong(tmp_path: Path, rng: random.Random) -> None:
    """Positive control: items lost, set back or raised behind the service's back are reported."""
    path = tmp_path / "shard"
    history, versions = History(), itertools.count(1)
    async with running(path) as (process, stub):
        await write_until_killed(process, stub, history, versions, rng, MAX_DELAY_SECONDS)
    async with running(path) as (_, stub):
        found = await look(path, stub, history.item_ids)
    history.settle(found)
    lost, stale = [item_id for item_id, version in found.items() if version is not None][:2]
    history.answered({"raised": None})

    store = ItemStore.open(path, 0, 1)
    assert all(
        isinstance(outcome, Committed)
        for outcome in store.apply(
            [
                Delete(INDEX_ID, [lost]),
                Upsert(
                    INDEX_ID,
                    FINGERPRINT,
                    [text_item(stale, 10**6), text_item("raised", RAISED_VERSION)],
                ),
            ]
        )
    )
    store.close()

    async with running(path) as (_, stub):
        sabotaged = await look(path, stub, history.item_ids)
    assert sorted(history.faults(sabotaged)) == [
        f"lost: {lost} of version {found[lost]}",
        f"phantom: raised of version {RAISED_VERSION}",
        f"stale: {stale} has version 1000000, not {found[stale]}",
    ]


def test_the_judge_sees_half_a_batch() -> None:
    """Positive control: an unanswered batch may be wholly there or wholly absent, not in part."""
    history = History()
    history.answered({"a": 1, "b": 2})
    history.unanswered({"a": 3, "b": None, "c": 4})

    assert history.faults({"a": 1, "b": 2}) == []
    assert history.faults({"a": 3, "c": 4}) == []
    assert history.faults({"a": 3, "b": 2})[0] == "half a batch: ['a', 'b', 'c']"


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[tuple[ShardProcess, IndexServiceStub]]:
    """Starts the shard, waits until it serves, and kills it in the end."""
    process = ShardProcess(path)
    try:
        async with await process.ready() as channel:
            yield process, IndexServiceStub(channel)
    finally:
        process.kill()


async def write_until_killed(
    process: ShardProcess,
    stub: IndexServiceStub,
    history: History,
    versions: Iterator[int],
    rng: random.Random,
    delay_seconds: float,
) -> None:
    """Writes to the shard from several sides and kills it after a while."""
    writers = [
        asyncio.create_task(write(stub, number, history, versions, rng))
        for number in range(WRITER_COUNT)
    ]
    await asyncio.sleep(delay_seconds)
    process.kill()
    await asyncio.gather(*writers)


async def write(
    stub: IndexServiceStub,
    number: int,
    history: History,
    versions: Iterator[int],
    rng: random.Random,
) -> None:
    """Upserts and deletes batches of one writer's own ids until a call fails."""
    own_ids = [f"{number}-{n}" for n in range(IDS_PER_WRITER)]
    while True:
        item_ids = rng.sample(own_ids, rng.randint(1, 8))
        # The index comes into being with an upsert, so a deletion cannot be the first call.
        is_delete = history.answered_count > 0 and rng.random() < 0.25
        batch: dict[str, Version] = {
            item_id: None if is_delete else next(versions) for item_id in item_ids
        }
        try:
            await call(stub, batch)
        except grpc.aio.AioRpcError as rpc_error:
            if rpc_error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            history.unanswered(batch)
            return
        history.answered(batch)


async def call(stub: IndexServiceStub, batch: dict[str, Version]) -> None:
    """Writes a batch of versions, or of deletions."""
    items = [text_item(item_id, version) for item_id, version in batch.items() if version]
    if items:
        await stub.UpsertItems(upsert_request(items), timeout=TIMEOUT_SECONDS)
    else:
        request = pb.DeleteItemsRequest(index_id=INDEX_ID, item_ids=batch)
        await stub.DeleteItems(request, timeout=TIMEOUT_SECONDS)


async def look(path: Path, stub: IndexServiceStub, item_ids: list[str]) -> dict[str, Version]:
    """Returns the versions in the store; what is found and read over gRPC must be the same."""
    found = stored_versions(path, item_ids)
    if found:
        await check_service(stub, found)
    return found


def stored_versions(path: Path, item_ids: list[str]) -> dict[str, Version]:
    """Reads the items beside the running service, as rerank_svc does; each must be whole."""
    store = ItemStore.open(path, 0, 1, readonly=True)
    try:
        if not store.index_ids():  # killed before the first commit
            return {}
        items = store.read_items(INDEX_ID, item_ids)
    finally:
        store.close()
    versions: dict[str, Version] = {}
    for item in items:
        if item is not None:
            assert isinstance(item.encoding.tokens, TextTokens)
            version = int(item.encoding.tokens.ids[1])
            expected = text_item(item.item_id, version)
            assert item.content == expected.content
            np.testing.assert_array_equal(item.encoding.embedding, expected.encoding.embedding)
            versions[item.item_id] = version
    return versions


async def check_service(stub: IndexServiceStub, stored: dict[str, Version]) -> None:
    """Asserts that searches and reads give what is stored, each item once, and nothing else."""
    response = await stub.SearchEmbeddings(search_request([1], k=1000), timeout=TIMEOUT_SECONDS)
    assert sorted(hit.item_id for hit in response.hit_lists[0].hits) == sorted(stored)
    request = pb.GetItemsRequest(index_id=INDEX_ID, item_ids=stored)
    response = await stub.GetItems(request, timeout=TIMEOUT_SECONDS)
    texts = {item.item_id: item.content.text for item in response.items}
    assert texts == {item_id: f"{item_id} of seed {version}" for item_id, version in stored.items()}
    for item_id, version in stored.items():
        request = search_request([version or 0], k=1)
        response = await stub.SearchEmbeddings(request, timeout=TIMEOUT_SECONDS)
        (hit,) = response.hit_lists[0].hits
        assert hit.item_id == item_id, f"{item_id} is not found by its own embedding"
        assert hit.similarity == pytest.approx(1.0, abs=1e-5)
