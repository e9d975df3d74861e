r"""Replaces items in Milvus, and kills its own process at one point of the write.

python -m tests.support.engines.killed_write URL NAMESPACE POINT
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

from index_svc.settings import IndexSettings
from tandem.contract.deadline import Deadline
from tandem.remote.chosen_engine import engine_shard
from tandem.remote.milvus import notes
from tandem.remote.milvus.connection import MilvusConnection
from tandem.remote.milvus.item_objects import ItemObjects
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item

WRITE_SECONDS = 60.0
SETTLED_SECONDS = 2.0
"""From the write until its note is settled."""
ITEM_COUNT = 8


def upsert(point: str, seed: int) -> Upsert:
    """Returns a write of items of the point's own; the seed tells their contents."""
    items = [text_item(f"{point}-{number}", seed) for number in range(ITEM_COUNT)]
    return Upsert("scenes", FINGERPRINT, items, f"{point}-{seed}")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, namespace: str, point: str) -> None:
    """Dies after the note, half of the records, the records, or the rows."""
    notes.GRACE_SECONDS = SETTLED_SECONDS - WRITE_SECONDS
    put, call = ItemObjects.put, MilvusConnection.call
    steps = iter(["note", "records"])

    async def dying_put(objects: ItemObjects, given: Iterable[tuple[str, bytes]]) -> None:
        given, step = list(given), next(steps)
        if (step, point) == ("records", "half"):
            await put(objects, given[: ITEM_COUNT // 2])
            kill()
        await put(objects, given)
        if step == point:
            kill()

    async def dying_call(
        connection: MilvusConnection, method: str, *args: object, **kwargs: Any
    ) -> object:
        answer = await call(connection, method, *args, **kwargs)
        if (method, point) == ("upsert", "rows"):
            kill()
        return answer

    settings = IndexSettings(
        shard_number=0, shard_count=1, engine="milvus", engine_url=url, engine_namespace=namespace
    )
    shard = engine_shard(settings)
    assert shard is not None
    with (
        patch.object(ItemObjects, "put", dying_put),
        patch.object(MilvusConnection, "call", dying_call),
    ):
        await shard.write(upsert(point, 2), Deadline.after(WRITE_SECONDS))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
