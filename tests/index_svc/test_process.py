"""The process that `python -m index_svc` starts."""

from pathlib import Path

import pytest

from tandem.corpus.item_store import ItemStore
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.corpus.made_items import text_item
from tests.faults.supervisor import Ending
from tests.index_svc.encoded_items import search_request, upsert_request
from tests.index_svc.shard_process import ShardProcess


async def test_sigterm_drains_and_exits_0(tmp_path: Path) -> None:
    """A process told to stop ends with exit code 0, and what it took is there."""
    process = ShardProcess(tmp_path / "shard")
    try:
        async with await process.ready() as channel:
            stub = IndexServiceStub(channel)
            await stub.UpsertItems(upsert_request([text_item("a", 1)]))
            response = await stub.SearchEmbeddings(search_request([1]))
            assert [hit.item_id for hit in response.hit_lists[0].hits] == ["a"]

            assert process.terminate() == Ending(exit_code=0)
    finally:
        process.kill()

    store = ItemStore.open(tmp_path / "shard", 0, 1)
    assert store.read_items("scenes", ["a"]) != [None]
    store.close()


@pytest.mark.parametrize(("number", "count"), [(0, 2), (1, 2), (3, 3)])
def test_another_shards_volume_stops_the_start(tmp_path: Path, number: int, count: int) -> None:
    """A wrong volume or shard number ends the process at once, with a message that names both."""
    path = tmp_path / "shard"
    ItemStore.open(path, 0, 1).close()
    process = ShardProcess(path, number, count)

    assert process.wait() == Ending(exit_code=1)

    message = process.log()
    assert f"shard {number} of {count}" in message
    assert "Traceback" not in message
