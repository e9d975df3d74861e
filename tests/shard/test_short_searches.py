"""Tests that short searches run in the event loop, unless that would hold up other calls."""

import asyncio
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from index_svc.servicer import IndexServicer
from tandem.contract.content import Modality
from tandem.item_store.item_store import ItemStore
from tandem.shard.shard import Shard
from tandem.shard.short_searches import ShortSearches
from tandem.stages.item_write import Upsert
from tandem.stages.retrieval import ShardQuery
from tests.support.index_svc.encoded_items import INDEX_ID, search_request
from tests.support.item_store.made_items import FINGERPRINT, text_item, unit_vector

QUERY = ShardQuery(
    INDEX_ID, FINGERPRINT, Modality.TEXT, Modality.IMAGE, 10, embeddings=[unit_vector(1)]
)


class CountingThreads(Executor):
    """Counts what it runs in real threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1)
        self.count = 0

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
        self.count += 1
        return self._threads.submit(*arguments, **options)


class NoDeadline:
    """Provides what the servicer reads of a call."""

    def time_remaining(self) -> float | None:
        return None


async def search(servicer: IndexServicer) -> list[str]:
    context: grpc.aio.ServicerContext = NoDeadline()
    response = await servicer.SearchEmbeddings(search_request([1]), context)
    return [hit.item_id for hit in response.hit_lists[0].hits]


def test_only_searches_that_were_short_are_predicted_short() -> None:
    """Nothing is known at first, and one long search counts for a while."""
    searches = ShortSearches()
    assert not searches.expects(QUERY)

    searches.note(QUERY, 0.0002)
    assert searches.expects(QUERY)
    assert not searches.expects(replace(QUERY, modality=Modality.IMAGE))

    searches.note(QUERY, 0.02)
    assert not searches.expects(QUERY)
    for _ in range(30):
        searches.note(QUERY, 0.0002)
    assert searches.expects(QUERY)


async def test_a_short_search_runs_on_the_loop_unless_it_would_wait(tmp_path: Path) -> None:
    """While items change it waits in a thread."""
    shard = Shard(ItemStore.open(tmp_path, 0, 1, map_bytes=16 << 20), tmp_path)
    shard.load()
    shard.write(Upsert(INDEX_ID, FINGERPRINT, [text_item("a", 1)])).result(60)
    threads = CountingThreads()
    servicer = IndexServicer(shard, threads)
    assert await search(servicer) == ["a"]
    servicer._short_searches = ShortSearches()  # whatever the first one took on this machine
    servicer._short_searches.note(QUERY, 0.0001)
    first_count = threads.count

    assert await search(servicer) == ["a"]
    assert threads.count == first_count

    with shard.index(INDEX_ID).changing():
        waiting = asyncio.create_task(search(servicer))
        await asyncio.sleep(0)
        assert threads.count == first_count + 1
        assert not waiting.done()
    assert await asyncio.wait_for(waiting, 60) == ["a"]
    shard.close()
