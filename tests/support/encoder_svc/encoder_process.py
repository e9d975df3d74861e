"""encoder_svc as a process of its own, whose memory can be watched."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from tandem.chassis.calls.channels import open_channel
from tests.support.faults.supervisor import Supervised
from tests.support.index_svc.shard_process import is_serving
from tests.support.triton.tiny_triton import Serving

START_SECONDS = 120


class EncoderProcess(Supervised):
    """`python -m encoder_svc`, or another module in its place, before a Triton."""

    def __init__(
        self, repository: Path, triton_address: str, log_path: Path, module: str = "encoder_svc"
    ) -> None:
        """Starts the process; ready() tells when it serves."""
        settings = {
            "ADDRESS": "127.0.0.1:0",
            "METRICS_PORT": "0",
            "TRITON_ADDRESS": triton_address,
            "MODEL_REPOSITORY": str(repository),
        }
        super().__init__(
            [sys.executable, "-m", module],
            log_path,
            {f"ENCODER_{name}": value for name, value in settings.items()},
        )

    async def ready(self) -> grpc.aio.Channel:
        """Returns a channel to the process once it serves."""
        end_time = time.monotonic() + START_SECONDS
        channel = None
        while self.ending() is None and time.monotonic() < end_time:
            channel = channel or self.channel()
            if channel is not None and await is_serving(channel):
                return channel
            await asyncio.sleep(0.02)
        raise AssertionError(f"encoder_svc does not serve ({self.ending()}): {self.log()}")

    def memory_bytes(self) -> int:
        """Returns what the process holds now."""
        lines = Path(f"/proc/{self.process_id}/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith("VmRSS")]
        return int(line.split()[1]) * 1024

    def channel(self) -> grpc.aio.Channel | None:
        """Returns a channel to the process, or None as long as it does not listen."""
        for line in self.log().splitlines():
            if '"listening"' in line:
                return open_channel(f"127.0.0.1:{json.loads(line)['port']}")
        return None


@asynccontextmanager
async def running_encoder(
    repository: Path, triton: Serving, log_path: Path, module: str = "encoder_svc"
) -> AsyncIterator[tuple[EncoderProcess, grpc.aio.Channel]]:
    """Starts the process, waits until it serves, and kills it in the end."""
    process = EncoderProcess(repository, triton.address, log_path, module)
    try:
        async with await process.ready() as channel:
            yield process, channel
    finally:
        process.kill()
