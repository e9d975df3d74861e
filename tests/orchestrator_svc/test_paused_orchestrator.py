"""Two orchestrators, one of which is paused while another generation begins to serve."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from encoder_svc.servicer import EncoderServicer
from tandem.chassis.calls.channels import open_channel
from tandem.chassis.health.health import Health
from tandem.chassis.serve.server import make_server
from tandem.client import AsyncClient
from tandem.contract.content import TextContent
from tandem.errors import TandemError
from tandem.remote.model import ModelServicer
from tandem.remote.shard import RemoteShard
from tandem.v1 import generation_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import add_EncoderServiceServicer_to_server
from tandem.v1.generation_service_pb2_grpc import GenerationServiceStub
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tests.support.faults.supervisor import Supervised
from tests.support.index_svc.shard_process import ShardProcess, listening_port
from tests.support.orchestrator_svc.generations import MODELS, SeededEncoder, stored_ids

PAUSE_SECONDS = 5.0


@asynccontextmanager
async def encoder_address(fingerprint: str) -> AsyncIterator[str]:
    """Serves an encoder of the model."""
    encoder = SeededEncoder(fingerprint)

    def add(server: grpc.aio.Server) -> None:
        servicer = EncoderServicer(encoder, 10.0)  # type: ignore[arg-type]
        add_EncoderServiceServicer_to_server(servicer, server)
        add_ModelServiceServicer_to_server(ModelServicer(encoder.describe), server)

    async def warm() -> None:
        """Returns at once."""

    health = Health("encoder", [])
    server = await make_server("encoder", health, add, [])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await health.watch(warm, None)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


class Orchestrating(Supervised):
    """Runs an orchestrator of both models, whose rerankers no search asks."""

    def __init__(self, log: Path, shards: str, encoder: str, next_encoder: str) -> None:
        super().__init__(
            [sys.executable, "-m", "orchestrator_svc"],
            log,
            {
                "ORCHESTRATOR_ADDRESS": "127.0.0.1:0",
                "ORCHESTRATOR_METRICS_PORT": "0",
                "ORCHESTRATOR_ENCODER_ADDRESS": encoder,
                "ORCHESTRATOR_INDEX_ADDRESSES": shards,
                "ORCHESTRATOR_RERANK_ADDRESSES": shards,
                "ORCHESTRATOR_NEXT_ENCODER_ADDRESS": next_encoder,
                "ORCHESTRATOR_NEXT_RERANK_ADDRESSES": shards,
                "ORCHESTRATOR_START_WAIT_SECONDS": "1",
            },
        )

    async def client(self) -> AsyncClient:
        """Returns a client once it serves."""
        while (port := listening_port(self.log())) is None or '"serving"' not in self.log():
            assert self.ending() is None, self.log()
            await asyncio.sleep(0.05)
        return AsyncClient(f"127.0.0.1:{port}", timeout_seconds=30.0)


def similarity(fingerprint: str, text: str) -> float:
    """Returns how near the model has a text to the query of this test's searches."""
    encoder = SeededEncoder(fingerprint)
    one, other = (encoder.encoding(TextContent(each)).embedding for each in (text, "a cat"))
    return float(one @ other)


class Traffic:
    """Searches and writes through one orchestrator, and reads what it wrote through another."""

    def __init__(self, name: str, own: AsyncClient, other: AsyncClient) -> None:
        self.name, self.own, self.other = name, own, other
        self.kept: set[str] = set()
        self.last_token = ""
        self.models: set[str] = set()
        self.failures: list[TandemError] = []
        self.is_over = False

    async def write(self) -> None:
        """Stores items until it is over; each is seen by its token, wherever one asks."""
        number = 0
        while not self.is_over:
            number += 1
            await self.store(item_id := f"{self.name}-{number}")
            await self._read_own(item_id)
            await asyncio.sleep(0.02)

    async def store(self, item_id: str) -> None:
        """Stores an item whose text is its id."""
        items = [(item_id, item_id)]
        [outcome] = [each async for each in self.own.ingest(items, index_id="photos")]
        assert outcome.error is None
        self.kept.add(item_id)
        self.last_token = outcome.consistency_token

    async def search(self) -> None:
        """Searches until it is over; the similarities of an answer are all of one model."""
        while not self.is_over:
            try:
                answer = await self.own.search(
                    "a cat",
                    index_id="photos",
                    target_modality="TEXT",
                    retrieve_k=1000,
                    return_n=1000,
                    rerank_disabled=True,
                )
            except TandemError as error:
                self.failures.append(error)
                continue
            model = answer.model_fingerprint
            self.models.add(model)
            for each in answer.items:
                assert each.similarity == pytest.approx(similarity(model, each.item_id), abs=1e-3)

    async def _read_own(self, item_id: str) -> None:
        answer = await self.other.search(
            item_id,
            index_id="photos",
            target_modality="TEXT",
            return_n=1,
            rerank_disabled=True,
            consistency_tokens=[self.last_token],
        )
        assert [each.item_id for each in answer.items] == [item_id]


def _kill(processes: Sequence[Supervised]) -> None:
    for each in processes:
        each.kill()


@pytest.mark.slow
async def test_an_orchestrator_paused_across_a_switch_mixes_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """Its searches before, during and after are of one generation each."""
    processes: list[Supervised] = [ShardProcess(tmp_path / f"shard-{n}", n, 2) for n in range(2)]
    async with AsyncExitStack() as opened:
        opened.callback(_kill, processes)
        shards, ports = [], []
        for number, process in enumerate(list(processes)):
            assert isinstance(process, ShardProcess)
            channel = await opened.enter_async_context(await process.ready())
            shards.append(RemoteShard(channel, number))
            ports.append(f"127.0.0.1:{process.port}")
        encoders = [await opened.enter_async_context(encoder_address(e)) for e in MODELS.values()]
        clients = []
        for name in ("a", "b"):
            log = tmp_path / f"{name}.log"
            processes.append(Orchestrating(log, ",".join(ports), *encoders))
        for process in processes[2:]:
            assert isinstance(process, Orchestrating)
            clients.append(await opened.enter_async_context(await process.client()))
        one, other = Traffic("a", *clients), Traffic("b", *reversed(clients))
        own = Traffic("c", clients[0], clients[0])
        await own.store("first")
        calls = (one.search, other.search, other.write, own.write)
        tasks = [asyncio.create_task(each()) for each in calls]
        port = listening_port(processes[2].log())
        channel = await opened.enter_async_context(open_channel(f"127.0.0.1:{port}"))
        generations = GenerationServiceStub(channel)
        await generations.CreateGeneration(pb.CreateGenerationRequest(index_id="photos"))
        await asyncio.sleep(1.0)

        processes[3].pause()
        pause = asyncio.create_task(asyncio.sleep(PAUSE_SECONDS))
        promotion = pb.PromoteGenerationRequest(index_id="photos", ungated_why="a test")
        while True:
            try:  # The paused one may have the lease.
                await generations.PromoteGeneration(promotion, timeout=30.0)
                break
            except grpc.aio.AioRpcError as error:
                if "GENERATION_REFUSED" not in str(error.trailing_metadata()):
                    raise
            await asyncio.sleep(0.5)
        await pause
        processes[3].resume()
        own.other = clients[1]  # At once: what was written meanwhile is seen there.
        await asyncio.sleep(2.0)
        for traffic in (one, other, own):
            traffic.is_over = True
        await asyncio.gather(*tasks)

        for traffic in (one, other):
            assert traffic.models == set(MODELS.values())
        stored = [await stored_ids(each, "photos@2") for each in shards]
        assert {item_id for ids in stored for item_id in ids} == other.kept | own.kept
        assert one.failures == []
        # Of calls that were in flight all the while.
        late = {"DEADLINE_EXCEEDED", "SHARDS_MISSING"}
        assert {each.reason for each in other.failures} <= late
