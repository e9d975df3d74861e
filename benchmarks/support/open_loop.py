"""Sends searches at a fixed rate, whether or not earlier ones were answered (an open loop).

    python -m benchmarks.support.open_loop ADDRESS INDEX --rate 20 --seconds 10 --deadline 5 < texts

It runs in its own process, so that its CPU time is not the services'. Prints one JSON line.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
from google.rpc import error_details_pb2, status_pb2

from tandem.chassis.channels import open_channel
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub

# A connection carries a hundred calls at once, by gRPC's default at its server's end.
CONNECTION_COUNT = 8


@dataclass
class Seen:
    """What became of the searches."""

    ok_seconds: list[float] = field(default_factory=list)
    ok_while_sending_count: int = 0
    """Those answered before the last was sent: what was in hand then is no lasting rate."""
    reranked_count: int = 0
    """Of those, the ones in which the cross-encoder scored something."""
    refused_seconds: list[float] = field(default_factory=list)
    undelayed_count: int = 0
    """Refusals with no RetryInfo."""
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
    channels = [open_channel(address) for _ in range(CONNECTION_COUNT)]
    searches = [SearchServiceStub(channel).SearchItems for channel in channels]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))

    async def search(number: int, due_time: float) -> None:
        request = pb.SearchItemsRequest(
            index_id=index_id, query={"text": texts[number % len(texts)]}
        )
        sent_time = time.perf_counter()
        seen.latest_start_seconds = max(seen.latest_start_seconds, sent_time - due_time)
        second = int(due_time - start_time)
        try:
            answer = await searches[number % len(searches)](request, timeout=deadline)
        except grpc.aio.AioRpcError as error:
            seen.codes[error.code().name] += 1
            seen.failed_in_second[second] += 1
            if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                seen.refused_seconds.append(time.perf_counter() - sent_time)
                seen.undelayed_count += not _has_retry_info(error)
        else:
            seen.codes["OK"] += 1
            seen.ok_in_second[second] += 1
            seen.ok_while_sending_count += time.perf_counter() - start_time <= seconds
            seen.ok_seconds.append(time.perf_counter() - sent_time)
            seen.reranked_count += any(item.HasField("match_logit") for item in answer.items)

    start_time = time.perf_counter()
    tasks = set()
    for number in range(int(rate * seconds)):
        due_time = start_time + number / rate
        await asyncio.sleep(max(0.0, due_time - time.perf_counter()))
        tasks.add(asyncio.create_task(search(number, due_time)))
    await asyncio.gather(*tasks)
    for channel in channels:
        await channel.close()
    return seen


def _has_retry_info(error: grpc.aio.AioRpcError) -> bool:
    metadata = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(metadata.get("grpc-status-details-bin", b""))
    return any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)


def quantile_ms(seconds: Sequence[float], share: float) -> float | None:
    """Returns a quantile in ms; None of nothing."""
    if not seconds:
        return None
    return round(1e3 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))], 1)


def main() -> None:
    """Prints one JSON line."""
    parser = argparse.ArgumentParser(description="searches at a rate, whatever becomes of them")
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
