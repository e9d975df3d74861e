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
async def test_a_listing_leaves_its_thread_when_its_caller_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """A pattern that fits no item would read millions of ids whose caller has left."""
    monkeypatch.setattr(shard, "_BLOCK_COUNT", 1)
    begun, going, blocks = threading.Event(), threading.Event(), []
    read = ItemStore.item_ids

    def waiting_read(*arguments: Any) -> list[str]:
        blocks.append(read(*arguments))
        begun.set()
        going.wait(60)
        return blocks[-1]

    async with open_shard(tmp_path) as one:
        items = [text_item(f"item-{n}", n) for n in range(20)]
        await one.write(Upsert(INDEX_ID, FINGERPRINT, items), Deadline.after(60))
        nothing = ItemSelection(id_glob="*no such item*")
        assert await one.list_item_ids(INDEX_ID, "", 10, Deadline.after(60), nothing) == []
        monkeypatch.setattr(ItemStore, "item_ids", waiting_read)
        deadline = Deadline.after(0.1 if is_late else 60)
        listing = asyncio.create_task(one.list_item_ids(INDEX_ID, "", 10, deadline, nothing))
        await asyncio.to_thread(begun.wait, 60)
        if not is_late:
            listing.cancel()
        await asyncio.wait([listing])
        going.set()
        # Both threads are free again once they take this.
        await asyncio.gather(*(one._in_thread(lambda: None) for _ in range(2)))

    assert len(blocks) == 1
