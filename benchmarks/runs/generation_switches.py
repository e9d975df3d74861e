"""Re-embeds an index, promotes, rolls back and promotes under load, and counts what went wrong.

    python -m benchmarks.runs.generation_switches [--items 20000] [--searches 20000]
    python -m benchmarks.runs.generation_switches --items 300 --searches 200    # the short form

A whole Tandem on this machine with two small models, two shards and two orchestrators; 16 clients
search, and 20 streams write up to 50 times a second together. Each step lasts until its command
ended and `--searches` searches were answered. Prints one JSON line with searches, failed ones and
p50 and p99 of each step, answers with scores of both models, and acknowledged writes that a
generation lacks or has in another form. Exits 1 if a search failed, an answer was mixed, or a write
is lost or stale.
"""

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runs import generation_kills as kills
from tandem.client import AsyncClient
from tandem.errors import TandemError

CLIENT_COUNT = 16
WRITES_A_SECOND = 50.0
WRITER_COUNT = 20
STEPS: dict[str, list[str]] = {
    "before": [],
    "create": ["create", kills.ALIAS, "--wait"],
    "promote": ["promote", kills.ALIAS, "--ungated", "a measurement"],
    "rollback": ["rollback", kills.ALIAS],
    "promote again": ["promote", kills.ALIAS, "--ungated", "a measurement"],
}


@dataclass
class TimedLoad(kills.Load):
    """Notes how long searches take, by step."""

    step: str = "before"
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)

    async def search(self, client: AsyncClient) -> None:
        """Searches until cancelled."""
        for number in itertools.count():
            step, start_time = self.step, time.monotonic()
            text = self.texts[number % len(self.texts)]
            try:
                answer = await client.search(text, index_id=kills.ALIAS, rerank_k=10)
            except TandemError as error:
                self.failures.setdefault(step, []).append(error.reason)
                continue
            self.seconds.setdefault(step, []).append(time.monotonic() - start_time)
            logits = [each.match_logit for each in answer.items if each.match_logit is not None]
            if len({logit > kills.LOGIT_STEP / 2 for logit in logits}) > 1:
                self.mixed.append(f"{step}: {logits}")


async def measured(address: str, load: TimedLoad, operator: kills.Operator, asked: Any) -> None:  # noqa: ANN401
    """Takes the steps while clients search and write."""
    async with AsyncExitStack() as opened:
        clients = [
            await opened.enter_async_context(AsyncClient(address, timeout_seconds=30.0))
            for _ in range(CLIENT_COUNT + 1)
        ]
        await kills.fill(clients[0], load, asked.items)
        tasks = [asyncio.create_task(load.search(each)) for each in clients[1:]]
        # A stream waits for each answer: 20 of them give 50 writes a second at 0.3 s an answer.
        pause_seconds = WRITER_COUNT / WRITES_A_SECOND - 0.3
        for writer in range(WRITER_COUNT):
            writing = load.write(clients[0], writer, pause_seconds)
            tasks.append(asyncio.create_task(writing))
        for number, (load.step, command) in enumerate(STEPS.items()):
            if command and not await asyncio.to_thread(operator.run, number, *command):
                raise RuntimeError(f"{load.step} failed: {dict(operator.refusals)}")
            # What comes before is the measure of p99 alone.
            wanted_count = asked.searches if command else min(asked.searches, 4_000)
            while len(load.seconds.get(load.step, [])) < wanted_count:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            print(f"{load.step} done", file=sys.stderr, flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    load = TimedLoad([])
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        kills.export_two(folder)
        stack, _ = kills.started(opened, folder, ORCHESTRATOR_MAX_INFLIGHT_COUNT="64")
        operator = kills.Operator(stack)
        asyncio.run(measured(stack.address, load, operator, asked))
        last = operator.settled()
        stack.stop()
        ids = [each["index_id"] for each in last["generations"]]
        found = {each: kills.faults_of(load, kills.stored(stack, each)) for each in ids}
    return {
        "run": "generation switches",
        "items": asked.items,
        "steps": {step: _figures(load, step) for step in STEPS},
        "mixed_count": len(load.mixed),
        "clients": load.counts,
        "refusals": operator.refusals,
        "faults": found,
    }


def _figures(load: TimedLoad, step: str) -> dict[str, Any]:
    milliseconds = 1e3 * np.array(load.seconds[step])
    return {
        "searches": len(milliseconds),
        "failed": load.failures.get(step, []),
        "p50_ms": round(float(np.quantile(milliseconds, 0.5)), 1),
        "p99_ms": round(float(np.quantile(milliseconds, 0.99)), 1),
    }


def main() -> None:
    """Runs it, and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--searches", type=int, default=20_000)
    result = run(parser.parse_args())
    print(json.dumps(result))
    faults = [
        each[kind]["count"]
        for each in result["faults"].values()
        for kind in ("lost", "stale", "revived")
    ]
    failed = sum(len(each["failed"]) for each in result["steps"].values())
    sys.exit(bool(failed or result["mixed_count"] or sum(faults)))


if __name__ == "__main__":
    main()
