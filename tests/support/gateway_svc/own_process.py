"""A gateway in a process of its own, as an operator runs it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


@dataclass
class GatewayProcess:
    """The process, where it listens, and what it logs."""

    process: Process
    events: list[dict[str, Any]] = field(default_factory=list)

    async def event(self, name: str) -> dict[str, Any]:
        """Reads the log up to the next event of that name."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if line.startswith(b"{"):
                self.events.append(json.loads(line))
                if self.events[-1]["event"] == name:
                    return self.events[-1]
        raise AssertionError(f"the log ended before {name!r}: {self.events}")

    async def end(self) -> int:
        """Waits for the process's end and returns its exit code."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if line.startswith(b"{"):
                self.events.append(json.loads(line))
        return await self.process.wait()


@asynccontextmanager
async def gateway_process(
    orchestrator_address: str, module: str = "gateway_svc", **settings: str
) -> AsyncIterator[GatewayProcess]:
    """Starts it, or another program with a gateway, on free ports; ends it, whatever happens."""
    variables = {
        "GATEWAY_ADDRESS": "127.0.0.1:0",
        "GATEWAY_METRICS_PORT": "0",
        "GATEWAY_ORCHESTRATOR_ADDRESS": orchestrator_address,
        **settings,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, cwd=ROOT, env=os.environ | variables, stderr=PIPE
    )
    try:
        yield GatewayProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
