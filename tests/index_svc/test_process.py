"""Tests the process that `python -m index_svc` starts."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tandem.chassis.calls.status import error_from_rpc
from tandem.errors import ServiceUnavailable
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.upkeep.snapshot import PARTIAL_SUFFIX
from tandem.stages.item_write import Upsert
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.faults.supervisor import Ending
from tests.support.index_svc.encoded_items import search_request, upsert_request
from tests.support.index_svc.shard_process import SNAPSHOT_OFTEN, ShardProcess, is_serving
from tests.support.item_store.made_items import FINGERPRINT, text_item


async def test_sigterm_drains_and_exits_0(tmp_path: Path) -> None:
    """Writes that it accepted are stored."""
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


async def test_only_the_owner_may_read_a_shards_files(tmp_path: Path) -> None:
    """Store and snapshots are private, whatever the umask."""
    before = os.umask(0)
    try:
        process = ShardProcess(tmp_path / "shard", settings=SNAPSHOT_OFTEN)
    finally:
        os.umask(before)
    try:
        async with await process.ready() as channel:
            items = [text_item(f"item-{number}", number) for number in range(40)]
            await IndexServiceStub(channel).UpsertItems(upsert_request(items), timeout=60)
            async with asyncio.timeout(60):
                while not whole_snapshots(tmp_path / "shard"):  # noqa: ASYNC110 (a file)
                    await asyncio.sleep(0.05)
        assert process.terminate() == Ending(exit_code=0)
    finally:
        process.kill()

    written = [tmp_path / "shard", *(tmp_path / "shard").rglob("*")]
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in written}
    expected = {path.name: "0o700" if path.is_dir() else "0o600" for path in written}
    assert modes == expected
    assert "rows.f32" in modes


def whole_snapshots(path: Path) -> list[Path]:
    """Returns the finished snapshots."""
    rows = path.rglob("rows.f32")
    return [each.parent for each in rows if not each.parent.name.endswith(PARTIAL_SUFFIX)]


def cut(data: bytearray) -> None:
    del data[len(data) // 2 // 4096 * 4096 :]


def zero(data: bytearray) -> None:
    data[2 * 4096 :] = bytes(len(data) - 2 * 4096)


# Two of four show both damages, and both ways to find them.
@pytest.mark.parametrize(
    ("checked_bytes", "damage"),
    [
        ("0", zero),
        ("1000000000", cut),
        pytest.param("0", cut, marks=pytest.mark.slow),
        pytest.param("1000000000", zero, marks=pytest.mark.slow),
    ],
)
async def test_a_damaged_store_is_served_as_corrupt(
    tmp_path: Path, damage: Callable[[bytearray], None], checked_bytes: str
) -> None:
    """The process stays NOT_SERVING and refuses every call, until SIGTERM."""
    path = tmp_path / "shard"
    store = ItemStore.open(path, 0, 1)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item(f"{n}", n) for n in range(200)])])
    store.close()
    data = bytearray((path / "data.mdb").read_bytes())
    damage(data)
    (path / "data.mdb").write_bytes(data)
    process = ShardProcess(path, settings={"CHECKED_AT_START_BYTES": checked_bytes})
    try:
        async with await process.listening() as channel:
            stub = IndexServiceStub(channel)
            ids: dict[str, Any] = {"index_id": "scenes", "item_ids": ["a"]}
            for call in (
                stub.SearchEmbeddings(search_request([1])),
                stub.UpsertItems(upsert_request([text_item("a", 1)])),
                stub.DeleteItems(pb.DeleteItemsRequest(**ids)),
                stub.GetItems(pb.GetItemsRequest(**ids)),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
                error = error_from_rpc(caught.value, "index")
                assert isinstance(error, ServiceUnavailable)
                assert "shard corrupt: restore" in error.message
            assert not await is_serving(channel)

        assert process.terminate() == Ending(exit_code=0)
    finally:
        process.kill()
    assert '"shard corrupt"' in process.log()
