"""Promotes a generation that then fails, and measures when it is rolled back.

    python -m benchmarks.runs.generation_shadow [--fault failing|none] [--clients 8]

A whole Tandem on this machine with two small models and two shards. Once the second generation
serves, its encoder is ended, while clients search, and no operator asks for a rollback. Prints one
JSON line: the seconds from the fault until the first generation serves again, the reason in the
record, and how many searches failed meanwhile. With `none`, which is the control, it watches for
120 s that nothing happens.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from benchmarks.runs import generation_kills as kills
from benchmarks.support.small_model import save_small
from tandem.client import AsyncClient
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.stack.next_models import NextModels
from tandem.stack.stack import LocalStack, Ports

ALLOWED_SECONDS = 120.0


async def watched(
    stack: LocalStack, following: NextModels, load: kills.Load, asked: argparse.Namespace
) -> dict[str, Any]:
    """Promotes, brings the fault about, and returns what became of it."""
    operator = kills.Operator(stack)
    async with AsyncExitStack() as opened:
        clients = [
            await opened.enter_async_context(AsyncClient(stack.address, timeout_seconds=30.0))
            for _ in range(asked.clients)
        ]
        await kills.fill(clients[0], load, asked.items)
        for number, command in enumerate((("create", "--wait"), ("promote", "--ungated", "a run"))):
            name, *options = command
            if not await asyncio.to_thread(operator.run, number, name, kills.ALIAS, *options):
                raise RuntimeError(f"{name} failed: {dict(operator.refusals)}")
        tasks = [asyncio.create_task(load.search(each)) for each in clients]
        await asyncio.sleep(2.0)
        start_time = time.monotonic()
        if asked.fault == "failing":
            following.kill_service("next-encoder")
        serving, seconds = "", 0.0
        while serving != kills.ALIAS and seconds < ALLOWED_SECONDS:
            await asyncio.sleep(1.0)
            [alias] = await asyncio.to_thread(operator.aliases, 0) or [{}]
            serving, seconds = alias.get("serving_id", ""), time.monotonic() - start_time
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "run": "generation shadow",
        "fault": asked.fault,
        "serving": serving,
        "seconds": round(seconds, 1),
        "alias": {name: each for name, each in alias.items() if name != "generations"},
        "clients": load.counts,
    }


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        repositories = [folder / "models", folder / "next_models"]
        for repository, changes in zip(repositories, ({}, {"word_noise": 1.0}), strict=True):
            export_model(save_small(folder / "checkpoint", **changes), repository, Precision.FP32)
        count = kills.SHARD_COUNT
        ports = Ports.free(count, replica_count=2), Ports.free(count)
        following = NextModels(folder / "data", repositories[1], ports[1])
        opened.enter_context(following)
        settings = dict(following.variables())
        stack = LocalStack(folder / "data", repositories[0], ports[0], settings=settings)
        opened.enter_context(stack)
        stack.start()
        following.start()
        return asyncio.run(watched(stack, following, kills.Load([]), asked))


def main() -> None:
    """Prints the result, and exits 1 unless the fault, and it alone, was answered in time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--fault", choices=("failing", "none"), default="failing")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--items", type=int, default=300)
    asked = parser.parse_args()
    result = run(asked)
    print(json.dumps(result))
    sys.exit((result["serving"] == kills.ALIAS) is (asked.fault == "none"))


if __name__ == "__main__":
    main()
