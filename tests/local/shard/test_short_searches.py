"""Tests that short searches run in the event loop, unless that would hold up other calls."""

import asyncio
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.local_shard import LocalShard
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.short_searches import ShortSearches
from tandem.stages.item_write import Upsert
from tandem.stages.retrieval import ShardQuery
from tests.support.index_svc.encoded_items import INDEX_ID
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


async def search(shard: LocalShard) -> list[str]:
    answer = await shard.search(QUERY, Deadline.after(60.0))
    return [hit.item_id for hit in answer.found[0].hits]


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
    stored = StoredShard(ItemStore.open(tmp_path, 0, 1, map_bytes=16 << 20), tmp_path)
    stored.load()
    stored.write(Upsert(INDEX_ID, FINGERPRINT, [text_item("a", 1)])).result(60)
    threads = CountingThreads()
    shard = LocalShard(stored, threads)
    assert await search(shard) == ["a"]
    shard._short_searches = ShortSearches()  # whatever the first one took on this machine
    shard._short_searches.note(QUERY, 0.0001)
    first_count = threads.count

    assert await search(shard) == ["a"]
    assert threads.count == first_count

    with stored.index(INDEX_ID).changing():
        waiting = asyncio.create_task(search(shard))
        await asyncio.sleep(0)
        assert threads.count == first_count + 1
        assert not waiting.done()
    assert await asyncio.wait_for(waiting, 60) == ["a"]
    stored.close()
