"""What sending traces costs a call, with a collector there, away, and silent.

    python benchmarks/bench_exporter.py [--calls 2000] [--rounds 3]

A service with all interceptors in this process, called one call at a time over loopback; every call
is sampled, which is a hundred times as much as by default. "away": nobody listens on its port.
"silent": it takes connections and never answers. The cases take turns in each round.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import grpc
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from watch.otlp_receiver import OtlpReceiver

from tandem.chassis import log
from tandem.chassis.channels import open_channel
from tandem.chassis.health import Health
from tandem.chassis.server import make_server
from tandem.chassis.tracing import Tracing, provider_of, tracing, use
from tandem.local.free_ports import free_ports
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceServicer,
    SearchServiceStub,
    add_SearchServiceServicer_to_server,
)

CASES = ("no traces", "there", "away", "silent")
_WARM_COUNT = 200


class Empty(SearchServiceServicer):
    """Finds nothing, in two stages."""

    async def SearchItems(
        self, request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        """Answers at once."""
        with tracing().stage("encode"):
            pass
        with tracing().stage("retrieve"):
            return pb.SearchItemsResponse()


@contextmanager
def collector(case: str) -> Iterator[str]:
    """Gives the address to send traces to; empty for none."""
    [port] = free_ports(1)
    match case:
        case "there":
            with OtlpReceiver(port) as receiver:
                yield receiver.address
        case "silent":
            with socket.create_server(("127.0.0.1", port)):
                yield f"127.0.0.1:{port}"
        case "away":
            yield f"127.0.0.1:{port}"
        case _:
            yield ""


async def call_seconds(case: str, count: int) -> list[float]:
    """Returns what each call took."""
    with collector(case) as address:
        traced = Tracing()
        if address:
            exporter = OTLPSpanExporter(endpoint=address, insecure=True, timeout=2)
            traced = Tracing(provider_of("bench", exporter, ALWAYS_ON))
        use(traced)
        health = Health("bench", ["tandem.v1.SearchService"])
        server = await make_server(
            "bench",
            health,
            lambda added: add_SearchServiceServicer_to_server(Empty(), added),
            ["tandem.v1.SearchService"],
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        seconds = []
        async with open_channel(f"127.0.0.1:{port}") as channel:
            search = SearchServiceStub(channel).SearchItems
            for number in range(_WARM_COUNT + count):
                start_time = time.perf_counter()
                await search(pb.SearchItemsRequest())
                if number >= _WARM_COUNT:
                    seconds.append(time.perf_counter() - start_time)
        await server.stop(None)
        use(Tracing())
        await asyncio.to_thread(traced.close)
    return seconds


def main() -> None:
    """Prints one JSON line and a table."""
    parser = argparse.ArgumentParser(description="calls with traces sent, by the collector")
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    log.configure("bench", io.StringIO())

    async def measure() -> dict[str, list[list[float]]]:
        found: dict[str, list[list[float]]] = {case: [] for case in CASES}
        for _ in range(arguments.rounds):
            for case in CASES:
                found[case].append(sorted(await call_seconds(case, arguments.calls)))
        return found

    result = {
        case: {
            "p50_ms": round(1e3 * median(each[len(each) // 2] for each in rounds), 3),
            "p99_ms": round(1e3 * median(each[int(0.99 * len(each))] for each in rounds), 3),
        }
        for case, rounds in asyncio.run(measure()).items()
    }
    print(json.dumps({"benchmark": Path(__file__).stem, **vars(arguments), "cases": result}))
    print("| collector | p50 ms | p99 ms |\n| --- | ---: | ---: |")
    for case, row in result.items():
        print(f"| {case} | {row['p50_ms']} | {row['p99_ms']} |")


if __name__ == "__main__":
    main()
