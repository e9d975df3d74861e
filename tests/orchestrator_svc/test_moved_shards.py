"""An orchestrator follows `tandem move` under searches and writes, without a failed one."""

import asyncio
import itertools
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tandem.chassis.health.health import Health
from tandem.chassis.serve.server import make_server
from tandem.client import AsyncClient
from tests.support.faults.supervisor import Ending, Supervised
from tests.support.index_svc.shard_process import listening_port
from tests.support.move.moving_shards import MoveProcess, Shards, shards
from tests.support.orchestrator_svc.downstream import FakeEncoder, FakeShard, adding_models

SEARCHER_COUNT = 16
ITEM_COUNT = 400


@asynccontextmanager
async def models() -> AsyncIterator[str]:
    """Serves an encoder, and a reranker that scores nothing."""
    health = Health("fake", [])
    server = await make_server("fake", health, adding_models(FakeEncoder(), FakeShard()), [])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await health.watch(_warm, None)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def _warm() -> None:
    """Returns at once."""


class OrchestratorProcess(Supervised):
    """Runs `python -m orchestrator_svc`."""

    def __init__(
        self, shards: Shards, models_address: str, folder: Path, name: str = "map"
    ) -> None:
        rerankers = ",".join([models_address] * len(shards.processes))
        super().__init__(
            [sys.executable, "-m", "orchestrator_svc"],
            folder / f"{name}.log",
            {
                "ORCHESTRATOR_ADDRESS": "127.0.0.1:0",
                "ORCHESTRATOR_METRICS_PORT": "0",
                "ORCHESTRATOR_ENCODER_ADDRESS": models_address,
                "ORCHESTRATOR_INDEX_ADDRESSES": ",".join(shards.addresses),
                "ORCHESTRATOR_RERANK_ADDRESSES": rerankers,
                "ORCHESTRATOR_SHARD_MAP_FILE": str(folder / f"{name}.json"),
            },
        )

    async def address(self) -> str:
        """Waits until it serves."""
        while (port := listening_port(self.log())) is None or '"serving"' not in self.log():
            assert self.ending() is None, self.log()
            await asyncio.sleep(0.05)
        return f"127.0.0.1:{port}"


async def store(client: AsyncClient, texts: dict[str, str]) -> str:
    """Stores texts; returns the last consistency token."""
    token = ""
    async for outcome in client.ingest(list(texts.items()), index_id="scenes"):
        assert outcome.error is None, outcome
        token = outcome.consistency_token
    return token


async def found(client: AsyncClient, text: str, *tokens: str, depth: int = 100) -> list[str]:
    """Returns the items found by a search that misses no shard."""
    answer = await client.search(
        text,
        index_id="scenes",
        target_modality="text",
        retrieve_k=depth,
        return_n=depth,
        rerank_disabled=True,
        consistency_tokens=tokens,
        full_coverage_required=True,
    )
    return [item.item_id for item in answer.items]


@pytest.mark.slow
async def test_no_search_fails_and_no_write_is_lost_while_shards_move(tmp_path: Path) -> None:
    """None of the searches of 16 clients fails, and each acknowledged write is there at the end.

    Calls go to two orchestrators in turn, one of which switches a second after the other.
    """
    async with AsyncExitStack() as opened:
        address = await opened.enter_async_context(models())
        sources = await opened.enter_async_context(shards(tmp_path / "from", 2))
        targets = await opened.enter_async_context(
            shards(tmp_path / "to", 3, {"SHARD_MAP_VERSION": 2})
        )
        processes = [
            OrchestratorProcess(sources, address, tmp_path, name) for name in ("map", "late")
        ]
        clients = []
        for process in processes:
            opened.callback(process.kill)
            client = AsyncClient(await process.address(), timeout_seconds=30.0)
            clients.append(await opened.enter_async_context(client))
        client = clients[0]
        expected = {f"item-{n:03}": str(n % 180) for n in range(ITEM_COUNT)}
        token = await store(client, expected)
        done = asyncio.Event()

        async def search() -> int:
            for number in itertools.count():
                if done.is_set():
                    return number
                # A token from before the move, all along.
                assert len(await found(clients[number % 2], str(number % 180), token)) == 100
            raise AssertionError

        async def write() -> int:
            last = ""
            for number in itertools.count():
                if done.is_set():
                    return number
                changed = {f"live-{number}": str(number % 180), f"item-{number % 300:03}": "7"}
                last = await store(clients[number % 2], changed)
                expected.update(changed)
                if number % 4 == 3:
                    removal = await client.remove([f"live-{number - 1}"], index_id="scenes")
                    assert removal.removed_count == 1
                    del expected[f"live-{number - 1}"]
                if number % 4 == 2:  # It reads its own writes, on either side of the move.
                    # By the orchestrator that did not store it.
                    other = clients[(number + 1) % 2]
                    assert f"live-{number}" in await found(other, str(number % 180), last)
                await asyncio.sleep(0.02)
            raise AssertionError

        async with asyncio.TaskGroup() as group:
            searches = [group.create_task(search()) for _ in range(SEARCHER_COUNT)]
            writes = group.create_task(write())
            await asyncio.sleep(0.5)
            mover = MoveProcess(sources, targets, tmp_path, rerank_address=address)
            assert await mover.end() == Ending(exit_code=0), mover.log()
            for process in processes:
                while "shards switched" not in process.log():  # noqa: ASYNC110 (a log)
                    await asyncio.sleep(0.02)
                await asyncio.sleep(1.0)
                await asyncio.to_thread(
                    shutil.copyfile, tmp_path / "map.json", tmp_path / "late.json"
                )
            done.set()

        assert sum(each.result() for each in searches) > SEARCHER_COUNT
        assert writes.result() > 0
        stored = await targets.contents()
        assert {key: text for key, (text, _) in stored["scenes"].items()} == expected
        # A restarted orchestrator begins with the file's shards.
        for process in processes:
            process.kill()
        again = OrchestratorProcess(sources, address, tmp_path)
        opened.callback(again.kill)
        async with AsyncClient(await again.address()) as late:
            assert len(await found(late, "7", token)) == 100
