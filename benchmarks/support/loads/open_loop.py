"""Sends searches at a fixed rate, whether or not earlier ones were answered (an open loop).

    python -m benchmarks.support.loads.open_loop ADDRESS INDEX --rate 20 --seconds 10 --deadline 5

ADDRESS is host:port for gRPC, or a URL for HTTP. It runs in its own process, so that its CPU time
is not the services'. Reads texts, one a line, and prints one JSON line.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.support.loads.searches import open_searches


@dataclass
class Seen:
    """What became of the searches."""

    ok_seconds: list[float] = field(default_factory=list)
    ok_while_sending_count: int = 0
    """Those answered before the last was sent: what was in hand then is not a lasting rate."""
    reranked_count: int = 0
    """Of those, the ones in which the cross-encoder scored something."""
    refused_seconds: list[float] = field(default_factory=list)
    undelayed_count: int = 0
    """Refusals with no RetryInfo, or retry-after."""
    codes: Counter[str] = field(default_factory=Counter)
    latest_start_seconds: float = 0.0
    """By how much the sender was late, at worst."""
    ok_in_second: Counter[int] = field(default_factory=Counter)
    failed_in_second: Counter[int] = field(default_factory=Counter)


async def load(
    address: str, index_id: str, texts: Sequence[str], rate: float, seconds: float, deadline: float
) -> Seen:
    """Sends `rate` searches a second for `seconds`; returns when the last has ended."""
    seen = Seen()
    searches = await open_searches(address, index_id)

    async def search(number: int, due_time: float) -> None:
        sent_time = time.perf_counter()
        seen.latest_start_seconds = max(seen.latest_start_seconds, sent_time - due_time)
        second = int(due_time - start_time)
        ended = await searches.search(texts[number % len(texts)], deadline)
        seen.codes[ended.code] += 1
        if ended.code == "OK":
            seen.ok_in_second[second] += 1
            seen.ok_while_sending_count += time.perf_counter() - start_time <= seconds
            seen.ok_seconds.append(time.perf_counter() - sent_time)
            seen.reranked_count += ended.is_reranked
        else:
            seen.failed_in_second[second] += 1
        if ended.code == "RESOURCE_EXHAUSTED":
            seen.refused_seconds.append(time.perf_counter() - sent_time)
            seen.undelayed_count += not ended.has_delay

    start_time = time.perf_counter()
    tasks = set()
    for number in range(int(rate * seconds)):
        due_time = start_time + number / rate
        await asyncio.sleep(max(0.0, due_time - time.perf_counter()))
        tasks.add(asyncio.create_task(search(number, due_time)))
    await asyncio.gather(*tasks)
    await searches.close()
    return seen


def quantile_ms(seconds: Sequence[float], share: float) -> float | None:
    """Returns a quantile in ms; None of nothing."""
    if not seconds:
        return None
    return round(1e3 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))], 1)


def main() -> None:
    """Prints one JSON line."""
    parser = argparse.ArgumentParser(
        description="searches at a fixed rate, independent of responses"
    )
    parser.add_argument("address")
    parser.add_argument("index_id")
    parser.add_argument("--rate", type=float, required=True, help="searches a second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--deadline", type=float, required=True, help="seconds a search may take")
    arguments = parser.parse_args()
    texts = [line.strip() for line in sys.stdin if line.strip()]
    seen = asyncio.run(
        load(
            arguments.address,
            arguments.index_id,
            texts,
            arguments.rate,
            arguments.seconds,
            arguments.deadline,
        )
    )
    print(
        json.dumps(
            {
                "offered_per_second": arguments.rate,
                "ok_per_second": round(seen.ok_while_sending_count / arguments.seconds, 2),
                "reranked_share_of_ok": round(
                    seen.reranked_count / max(1, len(seen.ok_seconds)), 3
                ),
                "ok_p50_ms": quantile_ms(seen.ok_seconds, 0.5),
                "ok_p99_ms": quantile_ms(seen.ok_seconds, 0.99),
                "refused_p50_ms": quantile_ms(seen.refused_seconds, 0.5),
                "refused_p99_ms": quantile_ms(seen.refused_seconds, 0.99),
                "refused_without_retry_info": seen.undelayed_count,
                "codes": dict(seen.codes),
                "sender_late_ms": round(1e3 * seen.latest_start_seconds, 1),
                "ok_in_second": dict(seen.ok_in_second),
                "failed_in_second": dict(seen.failed_in_second),
            }
        )
    )


if __name__ == "__main__":
    main()
