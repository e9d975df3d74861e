"""Moves items between real index services, under writes and faults."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tandem.chassis.access.tokens import Scope
from tandem.client.access import Access
from tandem.contract.deadline import Deadline
from tandem.errors import PermissionDenied, ServiceUnavailable, WriterRefused
from tandem.remote.move.move_files import MovedShards, read_move_file
from tandem.remote.move.mover import MoveRefused
from tandem.remote.move.shard_link import ShardLink
from tandem.stages.item_write import Delete, is_refused_by_fence
from tandem.stages.notes import PutNote, SetWriter
from tandem.v1 import index_admin_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tests.support.faults.supervisor import Ending
from tests.support.index_svc.shard_process import running
from tests.support.item_store.made_items import text_item
from tests.support.move.moving_shards import MoveProcess, Shards, mover, shards, write_until
from tests.support.security.secured_stack import token_entry

VERSION_2 = {"SHARD_MAP_VERSION": 2}


@pytest.fixture
async def sources(tmp_path: Path) -> AsyncIterator[Shards]:
    async with shards(tmp_path / "from", 2) as running:
        yield running


@pytest.fixture
async def targets(tmp_path: Path) -> AsyncIterator[Shards]:
    async with shards(tmp_path / "to", 3, VERSION_2) as running:
        yield running


async def refusal(shards: Shards) -> ServiceUnavailable:
    """Returns the error of a write that nothing repeats."""
    for writer in shards.writers:
        writer.is_left = True
    with pytest.raises(ServiceUnavailable) as raised:
        await shards.store([text_item("late")])
    return raised.value


async def test_all_items_are_on_the_other_shards_and_the_first_take_no_writes(
    sources: Shards, targets: Shards, tmp_path: Path
) -> None:
    """Several pages, two indexes, one without items, and one that is dropped meanwhile."""
    for start in range(0, 600, 200):
        await sources.store([text_item(f"item-{n:04}", n) for n in range(start, start + 200)])
    await sources.store([text_item("a"), text_item("b")], "other", "model-b")
    await sources.store([text_item("gone")], "empty", "model-c")
    await sources.delete(["gone"], "empty")

    versions = await mover(sources, targets, tmp_path / "progress").move()

    assert versions == (1, 2)
    moved = await targets.contents()
    assert moved == await sources.contents()
    assert {index_id: len(items) for index_id, items in moved.items()} == {
        "scenes": 600,
        "other": 2,
        "empty": 0,
    }
    assert is_refused_by_fence(await refusal(sources))
    await targets.store([text_item("late")])
    # Again: nothing is left to do, and what the targets took since stays.
    assert await mover(sources, targets, tmp_path / "progress").move() == (1, 2)
    assert "late" in (await targets.contents())["scenes"]


async def test_notes_and_who_may_write_go_to_the_other_shards(
    sources: Shards, targets: Shards, tmp_path: Path
) -> None:
    """Items of a later generation are where those of the first would be, as contents() checks."""
    await sources.store([text_item(f"item-{n}", n) for n in range(50)], "photos@2", "model-b")
    kept = [PutNote("alias/photos", '{"serving": 2}', 0), PutNote("calibration/b", "{}", 0)]
    rules = [
        SetWriter("photos", 3, is_open=False, progress="9"),
        SetWriter("photos@2", 3, is_open=True),
    ]
    writes: list[PutNote | SetWriter] = [*kept, PutNote("calibration/b", "[]", 1), *rules]
    for write in writes:
        await sources.writers[0].write(write, Deadline.after(10))
    await sources.writers[1].write(rules[0], Deadline.after(10))
    moving = mover(sources, targets, tmp_path / "progress")
    await moving.copy()
    # As a move that was killed in its last fence had left it.
    await targets.writers[0].write(PutNote("alias/photos", "older", 0), Deadline.after(10))

    await moving.move()

    assert len((await targets.contents())["photos@2"]) == 50
    assert await targets.contents() == await sources.contents()
    notes = {
        each.key: each.value for each in await targets.writers[0].notes("", Deadline.after(10))
    }
    assert [notes.pop(each.key) for each in kept] == ['{"serving": 2}', "[]"]
    assert set(notes) == {"writer/photos", "writer/photos@2"}
    for writer in targets.writers:
        with pytest.raises(WriterRefused):
            await writer.write(Delete("photos", ["item-1"]), Deadline.after(10))
    await targets.store([text_item("more")], "photos@2", "model-b")


async def test_an_index_of_two_generations_is_not_moved(
    sources: Shards, targets: Shards, tmp_path: Path
) -> None:
    """Whether the second is there before the move or comes in between; sources stay open."""
    await sources.store([text_item("a")], "photos")
    moving = mover(sources, targets, tmp_path / "progress")
    await moving.copy()
    await sources.store([text_item("a")], "photos@2", "model-b")
    for each in (moving, mover(sources, targets, tmp_path / "progress")):
        with pytest.raises(MoveRefused, match="index photos has 2 generations"):
            await each.move()
    await sources.store([text_item("b")], "photos@2", "model-b")
    await sources.drop("photos@2")

    await mover(sources, targets, tmp_path / "progress").move()

    moved = await targets.contents()
    assert {index_id: set(items) for index_id, items in moved.items()} == {"photos": {"a"}}


@pytest.mark.slow
async def test_a_seal_outlives_a_restart_and_can_be_lifted(
    sources: Shards, targets: Shards, tmp_path: Path
) -> None:
    await sources.store([text_item("a")])
    await mover(sources, targets, tmp_path / "progress").move()
    for process in sources.processes:
        process.kill()

    async with shards(tmp_path / "from", 2) as again:
        assert is_refused_by_fence(await refusal(again))
        for link in again.links:
            await link.fence(0)
        await again.store([text_item("b")])
        assert set((await again.contents())["scenes"]) == {"a", "b"}


@pytest.mark.slow
async def test_a_mover_that_is_killed_continues_under_writes(
    sources: Shards, targets: Shards, tmp_path: Path
) -> None:
    """Killed while it copies and while it follows; deletes in between are not lost."""
    for start in range(0, 2000, 200):
        await sources.store([text_item(f"item-{n:04}", n) for n in range(start, start + 200)])
    done = asyncio.Event()
    writing = asyncio.create_task(write_until(done, sources))
    progress = tmp_path / "progress.json"
    for is_near in ('"item_id": "item-', '"is_copied": true'):
        process = MoveProcess(sources, targets, tmp_path)
        while not (progress.exists() and is_near in progress.read_text()):
            assert process.ending() is None, process.log()
            await asyncio.sleep(0.002)
        process.kill()
        assert json.loads(progress.read_text())["is_sealed"] is False
        await asyncio.sleep(0.3)  # writes that a follower from here on would miss

    process = MoveProcess(sources, targets, tmp_path)
    assert await process.end() == Ending(exit_code=0), process.log()

    done.set()
    for writer in sources.writers:
        writer.is_left = True
    with pytest.raises(ServiceUnavailable):
        await writing
    assert await targets.contents() == await sources.contents()
    moved = read_move_file(tmp_path / "map.json", MovedShards)
    assert moved is not None
    assert (moved.version, moved.moved_from) == (2, (1, 2))
    assert list(moved.index_addresses) == targets.addresses


@pytest.mark.slow
async def test_an_index_may_be_dropped_and_come_back_with_another_model(
    sources: Shards, targets: Shards, tmp_path: Path
) -> None:
    """The sources drop it one after the other, so that their logs are of several states."""
    items = [text_item(f"item-{n:03}", n) for n in range(200)]
    await sources.store(items)
    await sources.store(items, "gone")
    moving = mover(sources, targets, tmp_path / "progress")
    await moving.copy()
    await sources.drop("gone")
    await sources.drop("scenes")
    await sources.store(
        [text_item(f"new-{n}", n, dimension=16) for n in range(50)], fingerprint="b"
    )

    await moving.move()

    moved = await targets.contents()
    assert moved == await sources.contents()
    assert [len(items) for items in moved.values()] == [50]


@pytest.mark.slow
async def test_a_copy_begins_again_where_the_change_log_was_too_short(tmp_path: Path) -> None:
    """What the targets had from the first copy and the sources deleted since is gone."""
    async with (
        shards(tmp_path / "from", 1, module="tests.support.move.short_log") as sources,
        shards(tmp_path / "to", 2, VERSION_2) as targets,
    ):
        await sources.store([text_item(f"item-{n}", n) for n in range(30)])
        shown: list[str] = []
        moving = mover(sources, targets, tmp_path / "progress", shown)
        await moving.copy()
        await sources.delete([f"item-{n}" for n in range(20)])
        for number in range(60):
            await sources.store([text_item("live", number)])

        await moving.move()

        assert any("the copy begins again" in each for each in shown)
        assert await targets.contents() == await sources.contents()
        assert len((await targets.contents())["scenes"]) == 11


async def test_a_move_that_would_lose_items_is_refused(tmp_path: Path) -> None:
    async with shards(tmp_path / "from", 1) as sources, shards(tmp_path / "to", 2, VERSION_2) as to:
        await sources.store([text_item("a")])

        with pytest.raises(MoveRefused, match="shard map is version 1, the sources' 2"):
            await mover(to, sources, tmp_path / "back").move()
        to.links.reverse()
        with pytest.raises(MoveRefused, match="is shard 1 of 2, and stands where shard 0 of 2 is"):
            await mover(sources, to, tmp_path / "turned").move()
        to.links.reverse()
        moving = mover(sources, to, tmp_path / "progress")
        await moving.copy()
        await to.store([text_item("b")])
        with pytest.raises(MoveRefused, match="something else writes to the targets"):
            await moving.move()
        with pytest.raises(MoveRefused, match="the targets have index scenes of model model-a"):
            await mover(sources, to, tmp_path / "another").move()

        await sources.store([text_item("c")])  # no fence is left


async def test_a_fence_ends_by_itself(tmp_path: Path) -> None:
    """A mover that dies in one keeps writers waiting for its time alone, and none is lost."""
    async with shards(tmp_path / "from", 1) as sources:
        await sources.store([text_item("a")])
        fence = await sources.links[0].fence(0.5)
        begin_time = time.monotonic()

        await sources.store([text_item("b")])

        assert 0.3 < time.monotonic() - begin_time < 30
        assert fence.sequence == 1
        # A write came after it.
        assert not (await sources.links[0].fence(0, fence.sequence)).is_sealed
        await sources.store([text_item("c")])


async def test_a_token_for_some_indexes_may_not_fence(tmp_path: Path) -> None:
    """A fence is of all indexes of a shard, and so is a description without an index."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(token_entry("one", "one", scopes=(Scope.ADMIN,), index_id="scenes"))
    path = tmp_path / "shard"
    async with running(path, environment={"ACCESS_TOKEN_FILE": str(tokens)}) as (process, channel):
        link = ShardLink(f"127.0.0.1:{process.port}", 0, Access(token="one"))
        with pytest.raises(PermissionDenied):
            await link.fence(0.1)
        await link.channel.close()
        with pytest.raises(grpc.aio.AioRpcError, match="use index"):
            await IndexAdminServiceStub(channel).DescribeIndexes(
                pb.DescribeIndexesRequest(), metadata=(("authorization", "Bearer one"),)
            )
