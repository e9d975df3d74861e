"""A whole system whose items are in an engine: what it finds, and what losing a process costs.

TANDEM_ENGINE_KILLS says how often each process is killed under writes, once by default.
"""

import asyncio
import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc
import pytest

from tandem.client import Client, NewItem, SearchResult
from tandem.contract.content import TextContent
from tandem.contract.deadline import Deadline
from tandem.corpus.scenes.records import scene_records
from tandem.errors import IndexNotFound, TandemError
from tandem.remote.shard import RemoteShard
from tandem.stack.stack import LocalStack, Ports
from tandem.stages.items import ItemsQuery
from tests.support.engines.milvus_server import MilvusServer
from tests.support.engines.postgres import running_postgres

INDEX = "scenes"


KILL_COUNT = int(os.environ.get("TANDEM_ENGINE_KILLS", "1"))


class Server(Protocol):
    """A server of an engine."""

    def start(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Running:
    """A server that the tests of this module kill, and how services reach it."""

    engine: str
    server: Server
    url: str
    lag_seconds: float = 0.0
    """By how much a search without a token may lag behind writes."""


@pytest.fixture(scope="module", params=["pgvector", "milvus"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A server of this module's own."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "pgvector":
        with running_postgres(folder / "data") as postgres:
            yield Running("pgvector", postgres, postgres.url())
        return
    pytest.importorskip("milvus", reason="make test-engines installs Milvus")
    milvus = MilvusServer(folder / "data")
    milvus.start()
    yield Running("milvus", milvus, f"http://{milvus.address}?objects=file://{folder}/objects", 1.0)
    milvus.stop_for_good()


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, lone_instances: Path, running: Running
) -> Iterator[LocalStack]:
    """Every process; no service has a store of its own."""
    settings = {
        f"{service}_{name}": value
        for service in ("INDEX", "RERANK")
        for name, value in {"ENGINE": running.engine, "ENGINE_URL": running.url}.items()
    }
    folder = tmp_path_factory.mktemp("stack")
    with LocalStack(folder, lone_instances, Ports.free(1), settings=settings) as started:
        started.start()
        yield started
        assert not started.store_path(0).exists()


def ingested(stack: LocalStack, lag_seconds: float = 0.0) -> Client:
    """Returns a client, once the scenes and their captions are stored and found."""
    client = Client(stack.address, timeout_seconds=60.0)
    items: list[NewItem] = []
    for scene in scene_records("test", 7, 12):
        items.append((scene.record_id, scene.image.read(), scene.attributes))
        items.append((f"{scene.record_id}/caption", scene.captions[0].text, scene.attributes))
    assert not any(outcome.error for outcome in client.ingest(items, index_id=INDEX))
    time.sleep(lag_seconds)
    return client


Scores = list[tuple[str, float, object]]


def scores(found: SearchResult) -> Scores:
    return [(each.item_id, each.similarity, each.match_logit) for each in found.items]


def near(expected: Scores) -> list[object]:
    """Returns what equals the scores but for the last digits, which batches round."""
    about = functools.partial(pytest.approx, abs=1e-5)
    return [(item_id, about(similarity), about(logit)) for item_id, similarity, logit in expected]


def test_answers_are_those_over_lmdb(
    stack: LocalStack, tiny_stack: LocalStack, running: Running
) -> None:
    """The same items in the same order, by the same logits, for a text and for a picture."""
    scene = next(iter(scene_records("test", 7, 12)))
    with ingested(stack, running.lag_seconds) as client, ingested(tiny_stack) as other:
        for query in (scene.captions[0].text, scene.image.read()):
            found = client.search(query, index_id=INDEX, rerank_k=12, return_n=12)
            expected = other.search(query, index_id=INDEX, rerank_k=12, return_n=12)
            assert scores(found) == near(scores(expected))
            assert len(found.items) == 12
            assert all(each.match_logit is not None for each in found.items)
            assert found.degradations == ()


def test_a_killed_engine_and_a_killed_index_svc_lose_nothing(
    stack: LocalStack, running: Running
) -> None:
    """Both answer again without a restart of the others."""
    with ingested(stack, running.lag_seconds) as client:

        def search() -> SearchResult:
            return client.search("a cat", index_id=INDEX, return_n=12)

        before = near(scores(search()))
        running.server.kill()
        with pytest.raises(TandemError):
            search()
        running.server.start()
        assert scores(answered(search)) == before

        stack.kill_service("index-0")
        stack.start_service("index-0")
        stack.wait_until_serving("index-0", time.monotonic() + 60)
        assert scores(answered(search)) == before


def answered(search: Callable[[], SearchResult]) -> SearchResult:
    """Returns the first answer with every stage, within a minute."""
    end_time = time.monotonic() + 60
    while True:
        try:
            if not (found := search()).degradations:
                return found
        except TandemError:
            pass
        assert time.monotonic() < end_time
        time.sleep(0.1)


def test_a_removed_index_is_gone(stack: LocalStack) -> None:
    with ingested(stack) as client:
        assert client.remove(["nothing"], index_id=INDEX).removed_count == 0
        client.remove_index(index_id=INDEX)
        with pytest.raises(IndexNotFound):
            client.search("a cat", index_id=INDEX)


@pytest.mark.timeout(300 + 240 * KILL_COUNT)
def test_kills_under_writes_lose_and_double_nothing(stack: LocalStack, running: Running) -> None:
    """Each process in turn; every item that was acknowledged is there once, as it was last."""
    index_id, stop, acknowledged = "killed", threading.Event(), dict[str, str]()

    def write() -> None:
        """Stores new items and replaces old ones, until it is told to stop."""
        with Client(stack.address, timeout_seconds=60.0) as client:
            for number in itertools.count():
                if stop.is_set():
                    return
                changed = [f"{number:06d}-{place}" for place in range(8)]
                changed += [f"{number // 2:06d}-0"]
                items: list[NewItem] = [
                    (item_id, f"a cat of write {number}") for item_id in dict.fromkeys(changed)
                ]
                try:
                    for outcome in client.ingest(items, index_id=index_id):
                        if outcome.error is None:
                            acknowledged[outcome.item_id] = f"a cat of write {number}"
                        else:
                            acknowledged.pop(outcome.item_id, None)  # it may be either
                except TandemError:
                    for item_id in changed:
                        acknowledged.pop(item_id, None)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for name in ["engine", "index-0", "rerank-0", "orchestrator"] * KILL_COUNT:
            time.sleep(2.0)
            if name == "engine":
                running.server.kill()
                running.server.start()
            else:
                stack.kill_service(name)
                stack.start_service(name)
                stack.wait_until_serving(name, time.monotonic() + 90)
            count = len(acknowledged)
            end_time = time.monotonic() + 90
            while len(acknowledged) < count + 16:
                assert time.monotonic() < end_time
                time.sleep(0.1)
    finally:
        stop.set()
        writer.join(120)
    time.sleep(running.lag_seconds)
    stored = asyncio.run(contents(stack.address_of("index-0"), index_id))
    print(f"{KILL_COUNT} kills of each process, {len(acknowledged)} items acknowledged")
    assert {item_id: stored.get(item_id) for item_id in acknowledged} == acknowledged


async def contents(address: str, index_id: str) -> dict[str, str]:
    """Returns all texts of an index by id, each of which is listed once."""
    texts: dict[str, str] = {}
    async with grpc.aio.insecure_channel(address) as channel:
        shard, after = RemoteShard(channel, 0), ""
        while item_ids := await shard.list_item_ids(index_id, after, 200, Deadline.after(60)):
            found = await shard.get(ItemsQuery(index_id, item_ids), Deadline.after(60))
            assert not texts.keys() & set(item_ids)
            assert list(found.items) == list(item_ids)
            for item_id, item in found.items.items():
                assert isinstance(item.content, TextContent)
                texts[item_id] = item.content.text
            after = item_ids[-1]
    return texts
