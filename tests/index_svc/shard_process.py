"""index_svc as a process of its own, to be killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.channels import open_channel

ROOT = Path(__file__).parents[2]
START_SECONDS = 30


class ShardProcess:
    """`python -m index_svc` over one folder, on a port that it chose itself."""

    def __init__(
        self, path: Path, shard_number: int = 0, shard_count: int = 1, **variables: str
    ) -> None:
        """Starts the process; ready() tells when it serves."""
        self.log_path = path.with_suffix(".log")
        settings = {
            "INDEX_ADDRESS": "127.0.0.1:0",
            "INDEX_METRICS_PORT": "0",
            "INDEX_STORE_PATH": str(path),
            "INDEX_SHARD_NUMBER": str(shard_number),
            "INDEX_SHARD_COUNT": str(shard_count),
            "INDEX_STORE_MAP_BYTES": str(64 << 20),
        }
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "index_svc"],
                cwd=ROOT,
                env=os.environ | settings | variables,
                stderr=log,
            )

    async def ready(self) -> grpc.aio.Channel:
        """Returns a channel to the process once its health says SERVING."""
        end_time = time.monotonic() + START_SECONDS
        channel = await self.listening()
        while time.monotonic() < end_time and self._process.poll() is None:
            if await is_serving(channel):
                return channel
            await asyncio.sleep(0.02)
        raise AssertionError(f"index_svc does not serve: {self.log_path.read_text()}")

    async def listening(self) -> grpc.aio.Channel:
        """Returns a channel to the process once it has a port, whatever its health says."""
        end_time = time.monotonic() + START_SECONDS
        while time.monotonic() < end_time and self._process.poll() is None:
            if port := self._port():
                return open_channel(f"127.0.0.1:{port}")
            await asyncio.sleep(0.02)
        raise AssertionError(f"index_svc does not listen: {self.log_path.read_text()}")

    def kill(self) -> None:
        """Ends the process by SIGKILL; it gets no chance to do anything."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stops the process where it is; its connections stay open and answer nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on."""
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """Ends the process by SIGTERM; returns its exit code."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Returns the exit code of a process that ends by itself."""
        return self._process.wait(START_SECONDS)

    def _port(self) -> int | None:
        for line in self.log_path.read_text().splitlines():
            if '"listening"' in line:
                return int(json.loads(line)["port"])
        return None


async def is_serving(channel: grpc.aio.Channel) -> bool:
    """Says whether the process's health is SERVING."""
    health = health_pb2_grpc.HealthStub(channel)
    try:
        response = await health.Check(health_pb2.HealthCheckRequest(), timeout=1)
    except grpc.aio.AioRpcError:
        return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)
