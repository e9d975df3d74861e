"""Lists selected items of a shard whose caller leaves."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tandem.contract.deadline import Deadline
from tandem.contract.search.item_changes import ItemSelection
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard import shard
from tandem.stages.item_write import Upsert
from tests.support.index_svc.encoded_items import INDEX_ID
from tests.support.item_store.followed_index import open_shard
from tests.support.item_store.made_items import FINGERPRINT, text_item


@pytest.mark.parametrize("is_late", [False, True])
async def test_listings_take_one_thread_and_end_when_their_callers_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """A pattern that fits no item would read millions of ids, in threads that searches need."""
    monkeypatch.setattr(shard, "_BLOCK_COUNT", 1)
    monkeypatch.setattr(shard, "_PART_BLOCK_COUNT", 1)
    begun, going, block_count = threading.Event(), threading.Event(), 0
    read = ItemStore.item_ids

    def waiting_read(*arguments: Any) -> list[str]:
        nonlocal block_count
        block_count += 1
        begun.set()
        going.wait(60)
        return read(*arguments)

    async with open_shard(tmp_path) as one:
        items = [text_item(f"item-{n}", n) for n in range(20)]
        await one.write(Upsert(INDEX_ID, FINGERPRINT, items), Deadline.after(60))
        nothing, last = ItemSelection(id_glob="*no such item*"), ItemSelection(id_glob="*m-9")
        assert await one.list_item_ids(INDEX_ID, "", 10, Deadline.after(60), nothing) == []
        assert await one.list_item_ids(INDEX_ID, "", 10, Deadline.after(60), last) == ["item-9"]
        monkeypatch.setattr(ItemStore, "item_ids", waiting_read)
        deadline = Deadline.after(1 if is_late else 60)
        listings = [
            asyncio.create_task(one.list_item_ids(INDEX_ID, "", 10, deadline, nothing))
            for _ in range(4)
        ]
        await asyncio.to_thread(begun.wait, 60)
        # The second of the two threads is free, or this never ends.
        await asyncio.wait_for(one._in_thread(lambda: None), 60)
        assert block_count == 1
        if not is_late:
            for listing in listings:
                listing.cancel()
        left = await asyncio.gather(*listings, return_exceptions=True)
        going.set()
        # Both threads are free again once they take this.
        await asyncio.gather(*(one._in_thread(lambda: None) for _ in range(2)))

    assert all(isinstance(each, BaseException) for each in left)
    # A part each at most, of 20.
    assert block_count <= 4
