"""The orchestrator's own service behind its locks, over services that are made up.

    python -m tests.support.security.hostile_door FILE_OF_TOKENS [SECONDS]

Prints where it listens, and serves until it is killed. Each encoding takes so many seconds.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tandem.chassis.process.memory import Trimmer, bound_memory
from tandem.chassis.process.threads import switch_threads_often
from tandem.chassis.telemetry import log
from tests.support.orchestrator_svc.downstream import door_address, stack


class Forgotten(list[tuple[str, object]]):
    """Calls whose results are not read: kept, they would look like a memory leak."""

    def append(self, _call: tuple[str, object]) -> None:
        """Keeps nothing."""


async def main(token_path: Path, encoding_seconds: float) -> None:
    """Serves."""

    async def encode(_: object) -> None:
        await asyncio.sleep(encoding_seconds)

    bound_memory()
    switch_threads_often()
    log.configure("orchestrator", sys.stderr)
    async with (
        stack(shard_count=1) as behind,
        door_address(behind, Guard(TokenFile(token_path))) as address,
    ):
        for service in (behind.encoder, *behind.shards):
            service.calls = Forgotten()
        behind.encoder.before["EncodeContents"] = encode
        print(address, flush=True)
        await Trimmer().watch()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
