"""Runs index_svc as a child process that tests can kill."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.calls.channels import open_channel
from tests.support.faults.supervisor import Supervised

START_SECONDS = 120
# Settings with which a small shard writes snapshots too.
SNAPSHOT_OFTEN: Mapping[str, object] = {"SNAPSHOT_CHANGE_COUNT": 20}


class ShardNotReady(AssertionError):
    """Raised if the process ends, or does not serve in time."""


class ShardProcess(Supervised):
    """Runs `python -m index_svc` over one folder, on a port that it chooses."""

    def __init__(
        self,
        path: Path,
        shard_number: int = 0,
        shard_count: int = 1,
        *,
        module: str = "index_svc",
        log_path: Path | None = None,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the process; ready() waits until it serves.

        `settings` are index_svc's, without their prefix; `module` runs instead of it, with
        additional `environment`.
        """
        values = {
            "ADDRESS": "127.0.0.1:0",
            "METRICS_PORT": 0,
            "STORE_PATH": path,
            "SHARD_NUMBER": shard_number,
            "SHARD_COUNT": shard_count,
            "STORE_MAP_BYTES": 64 << 20,
            **(settings or {}),
        }
        self._start_time = time.monotonic()
        super().__init__(
            [sys.executable, "-m", module],
            log_path or path.with_suffix(".log"),
            {
                **{f"INDEX_{name}": str(value) for name, value in values.items()},
                **(environment or {}),
            },
        )
        self.port = 0
        self.ready_seconds = 0.0

    async def ready(self) -> grpc.aio.Channel:
        """Returns a channel to the process once its health says SERVING; raises ShardNotReady."""
        channel = await self.listening()
        while self._is_starting():
            if await is_serving(channel):
                self.ready_seconds = time.monotonic() - self._start_time
                return channel
            if '"shard corrupt"' in self.log():
                break
            await asyncio.sleep(0.02)
        await channel.close()
        raise ShardNotReady(f"index_svc does not serve ({self.ending()}): {self.log()}")

    async def listening(self) -> grpc.aio.Channel:
        """Returns a channel to the process once it listens, whatever its health is.

        Raises ShardNotReady.
        """
        while self._is_starting():
            if port := self._port():
                self.port = port
                return open_channel(f"127.0.0.1:{port}")
            await asyncio.sleep(0.02)
        raise ShardNotReady(f"index_svc does not listen ({self.ending()}): {self.log()}")

    def _is_starting(self) -> bool:
        return self.ending() is None and time.monotonic() - self._start_time < START_SECONDS

    def _port(self) -> int | None:
        return listening_port(self.log())


def listening_port(log: str) -> int | None:
    """Returns the port that a service's log names, None before it listens."""
    for line in log.splitlines():
        if '"listening"' in line:
            return int(json.loads(line)["port"])
    return None


@asynccontextmanager
async def running(
    path: Path,
    **options: Any,
) -> AsyncIterator[tuple[ShardProcess, grpc.aio.Channel]]:
    """Starts the shard, waits until it serves, and kills it at the end."""
    process = ShardProcess(path, **options)
    try:
        async with await process.ready() as channel:
            yield process, channel
    finally:
        process.kill()


async def is_serving(channel: grpc.aio.Channel) -> bool:
    """Returns whether the process's health is SERVING."""
    health = health_pb2_grpc.HealthStub(channel)
    try:
        response = await health.Check(health_pb2.HealthCheckRequest(), timeout=1)
    except grpc.aio.AioRpcError:
        return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)
