"""A whole system whose items are in Postgres: what it finds, and what losing a process costs."""

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tandem.client import Client, NewItem, SearchResult
from tandem.corpus.scenes.records import scene_records
from tandem.errors import IndexNotFound, TandemError
from tandem.stack.stack import LocalStack, Ports
from tests.support.engines.postgres import Postgres, running_postgres

INDEX = "scenes"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server of this module's own, which its tests kill."""
    with running_postgres(tmp_path_factory.mktemp("postgres") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, lone_instances: Path, postgres: Postgres
) -> Iterator[LocalStack]:
    """Every process; no service has a store of its own."""
    settings = {
        f"{service}_{name}": value
        for service in ("INDEX", "RERANK")
        for name, value in {"ENGINE": "pgvector", "ENGINE_URL": postgres.url()}.items()
    }
    folder = tmp_path_factory.mktemp("stack")
    with LocalStack(folder, lone_instances, Ports.free(1), settings=settings) as running:
        running.start()
        yield running
        assert not running.store_path(0).exists()


def ingested(stack: LocalStack) -> Client:
    """Returns a client, once the scenes and their captions are stored."""
    client = Client(stack.address, timeout_seconds=60.0)
    items: list[NewItem] = []
    for scene in scene_records("test", 7, 12):
        items.append((scene.record_id, scene.image.read(), scene.attributes))
        items.append((f"{scene.record_id}/caption", scene.captions[0].text, scene.attributes))
    assert not any(outcome.error for outcome in client.ingest(items, index_id=INDEX))
    return client


Scores = list[tuple[str, float, object]]


def scores(found: SearchResult) -> Scores:
    return [(each.item_id, each.similarity, each.match_logit) for each in found.items]


def near(expected: Scores) -> list[object]:
    """Returns what equals the scores but for the last digits, which batches round."""
    about = functools.partial(pytest.approx, abs=1e-5)
    return [(item_id, about(similarity), about(logit)) for item_id, similarity, logit in expected]


def test_answers_are_those_over_lmdb(stack: LocalStack, tiny_stack: LocalStack) -> None:
    """The same items in the same order, by the same logits, for a text and for a picture."""
    scene = next(iter(scene_records("test", 7, 12)))
    with ingested(stack) as client, ingested(tiny_stack) as other:
        for query in (scene.captions[0].text, scene.image.read()):
            found = client.search(query, index_id=INDEX, rerank_k=12, return_n=12)
            expected = other.search(query, index_id=INDEX, rerank_k=12, return_n=12)
            assert scores(found) == near(scores(expected))
            assert len(found.items) == 12
            assert all(each.match_logit is not None for each in found.items)
            assert found.degradations == ()


def test_a_killed_postgres_and_a_killed_index_svc_lose_nothing(
    stack: LocalStack, postgres: Postgres
) -> None:
    """Both answer again without a restart of the others."""
    with ingested(stack) as client:

        def search() -> SearchResult:
            return client.search("a cat", index_id=INDEX, return_n=12)

        before = near(scores(search()))
        postgres.kill()
        with pytest.raises(TandemError):
            search()
        postgres.start()
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
