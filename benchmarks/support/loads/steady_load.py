"""Searches at a steady rate through the SDK, independent of responses, until the time is up.

    python -m benchmarks.support.loads.steady_load ADDRESS INDEX --rate 50 --seconds 400 < texts.txt

A process of its own, so that its work is not the services'. On SIGTERM it ends early. Prints one
JSON line: what became of the searches, with each kind of failure by name and its first few times.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.support.loads.open_loop import quantile_ms
from tandem.client import NO_RETRIES, AsyncClient, SearchResult
from tandem.errors import TandemError

_KEPT_FAILURE_COUNT = 5


@dataclass
class Seen:
    """What became of the searches."""

    ok_seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    failure_notes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    degraded: Counter[str] = field(default_factory=Counter)
    degraded_in_second: Counter[int] = field(default_factory=Counter)
    """By the day's clock."""
    unflagged_count: int = 0
    """Answers that lack a shard, or the rerank, and do not say so."""
    versions: Counter[int] = field(default_factory=Counter)
    mixed_count: int = 0
    """Answers with a score that is not of the version they name."""
    latest_start_seconds: float = 0.0
    """By how much the sender was late, at worst."""


@dataclass(frozen=True)
class Load:
    """What is sent."""

    address: str
    index_id: str
    texts: Sequence[str]
    rate: float
    seconds: float
    deadline_seconds: float
    rerank_k: int
    logit_step: float
    """What a version's number, less one, adds to every logit; 0 hides versions."""
    cancel_share: float = 0.0


async def send(load: Load) -> Seen:
    """Sends searches until the time is up or SIGTERM comes; returns when the last has ended."""
    seen = Seen()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    # Each failure counts, so none is repeated.
    client = AsyncClient(load.address, load.deadline_seconds, retries=NO_RETRIES)
    async with client:
        start_time = time.perf_counter()
        tasks: set[asyncio.Task[None]] = set()
        number = 0
        while number < load.rate * load.seconds and not stopping.is_set():
            due_time = start_time + number / load.rate
            await asyncio.sleep(max(0.0, due_time - time.perf_counter()))
            task = asyncio.create_task(_search(client, load, number, due_time, seen))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if load.cancel_share and number % round(1 / load.cancel_share) == 0:
                asyncio.get_running_loop().call_later(0.005, task.cancel)
            number += 1
        await asyncio.gather(*tasks, return_exceptions=True)
    return seen


async def _search(
    client: AsyncClient, load: Load, number: int, due_time: float, seen: Seen
) -> None:
    sent_time = time.perf_counter()
    seen.latest_start_seconds = max(seen.latest_start_seconds, sent_time - due_time)
    try:
        result = await client.search(
            # New each time, or a cache would answer.
            f"{load.texts[number % len(load.texts)]} {number}",
            index_id=load.index_id,
            rerank_k=load.rerank_k,
        )
    except asyncio.CancelledError:
        seen.failures["cancelled by us"] += 1
    except TandemError as error:
        seen.failures[error.reason] += 1
        notes = seen.failure_notes[error.reason]
        if len(notes) < _KEPT_FAILURE_COUNT:
            notes.append(f"{time.time():.3f} {error.message[:200]}")
    else:
        seen.ok_seconds.append(time.perf_counter() - sent_time)
        _note(result, load, seen)


def _note(result: SearchResult, load: Load, seen: Seen) -> None:
    for name in result.degradations:
        seen.degraded[name] += 1
    if result.is_degraded:
        seen.degraded_in_second[int(time.time())] += 1
    is_less = not result.coverage.is_full or result.rerank.stop not in ("COMPLETE", "DISABLED")
    seen.unflagged_count += is_less and not result.is_degraded
    seen.versions[result.model_version] += 1
    if load.logit_step:
        shifts = {
            round(item.match_logit / load.logit_step)
            for item in result.items
            if item.match_logit is not None
        }
        seen.mixed_count += not shifts <= {result.model_version - 1}


def main() -> None:
    """Prints one JSON line."""
    parser = argparse.ArgumentParser(description="searches at a steady rate through the SDK")
    parser.add_argument("address", help="host:port, or ipv4:host:port,host:port of several")
    parser.add_argument("index_id")
    parser.add_argument("--rate", type=float, required=True, help="searches a second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds a search may take")
    parser.add_argument("--rerank-k", type=int, default=4)
    parser.add_argument("--logit-step", type=float, default=0.0)
    parser.add_argument("--cancel-share", type=float, default=0.0)
    arguments = parser.parse_args()
    seen = asyncio.run(
        send(
            Load(
                arguments.address,
                arguments.index_id,
                [line.strip() for line in sys.stdin if line.strip()],
                arguments.rate,
                arguments.seconds,
                arguments.deadline,
                arguments.rerank_k,
                arguments.logit_step,
                arguments.cancel_share,
            )
        )
    )
    print(
        json.dumps(
            {
                "ok": len(seen.ok_seconds),
                "failed": {name: n for name, n in seen.failures.items() if n},
                "failure_notes": seen.failure_notes,
                "degraded": seen.degraded,
                "degraded_in_second": seen.degraded_in_second,
                "unflagged": seen.unflagged_count,
                "versions": seen.versions,
                "mixed": seen.mixed_count,
                "p50_ms": quantile_ms(seen.ok_seconds, 0.5),
                "p99_ms": quantile_ms(seen.ok_seconds, 0.99),
                "max_ms": quantile_ms(seen.ok_seconds, 1.0),
                "sender_late_ms": round(1e3 * seen.latest_start_seconds, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
