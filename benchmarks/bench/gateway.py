"""What a search over HTTP takes over the same search by gRPC, in two shapes.

    python -m benchmarks.bench.gateway [--searches 200] [--scenes 48] [--shapes apart merged]

The whole system on this machine, with a model that computes in a millisecond, so that the doors
are a large part. Apart, the gateway is a process of its own (`tandem up`); merged, all services
are in one process (`tandem up --merged`). The stacks run side by side. Every search is made by each
way of each, in an order that is drawn each time, from one caller that keeps its connections, and
ends with the answer parsed.
Differences are to gRPC of the same shape, of neighbours in time. CPU is that of all services
without Triton, of all their threads, by the scheduler's count.
"""

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import torch

from benchmarks.support.small_model import save_small, short_texts
from benchmarks.support.stored_pictures import store_pictures
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.stack.stack import LocalStack, Ports
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub

INDEX_ID = "scenes"
SHAPES = ("apart", "merged")
GRPC = "gRPC"
CONNECT_PATH = "/tandem.v1.SearchService/SearchItems"
SEED = 1
WARM_COUNT = 20

Search = Callable[[str], object]
Row = dict[str, Any]


class HttpCaller:
    """One connection, which is kept."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, kind: str, body: bytes) -> bytes:
        """Returns the answer's body."""
        self._connection.request("POST", path, body, {"content-type": kind})
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == http.client.OK, answer
        return answer


def ways(stack: LocalStack) -> Mapping[str, Search]:
    """Returns each way to search; gRPC is the first."""
    stub = SearchServiceStub(grpc.insecure_channel(stack.address))
    caller = HttpCaller(stack.http_url or "")

    def request(text: str) -> pb.SearchItemsRequest:
        return pb.SearchItemsRequest(index_id=INDEX_ID, query={"text": text})

    def by_rest(text: str) -> object:
        body = json.dumps({"query": text, "index_id": INDEX_ID}).encode()
        return json.loads(caller.post("/v1/search", "application/json", body))

    def by_json(text: str) -> object:
        body = json.dumps({"query": {"text": text}, "indexId": INDEX_ID}).encode()
        return json.loads(caller.post(CONNECT_PATH, "application/json", body))

    def by_proto(text: str) -> object:
        sent = request(text).SerializeToString()
        return pb.SearchItemsResponse.FromString(
            caller.post(CONNECT_PATH, "application/proto", sent)
        )

    return {
        GRPC: lambda text: stub.SearchItems(request(text)),
        "/v1/search": by_rest,
        "Connect, JSON": by_json,
        "Connect, protobuf": by_proto,
    }


@dataclass(frozen=True)
class Way:
    """One way to search one stack, with the processes of its services."""

    shape: str
    name: str
    search: Search
    pids: tuple[int, ...]

    def cpu_seconds(self) -> float:
        """Returns what all threads of the services have run, to the nanosecond."""
        tasks = (task for pid in self.pids for task in Path(f"/proc/{pid}/task").iterdir())
        return 1e-9 * sum(map(_run_nanoseconds, tasks))


def measure(given: Sequence[Way], texts: Sequence[str], count: int) -> list[Row]:
    """Returns the figures of each way, which take turns."""
    for number in range(WARM_COUNT):
        for way in given:
            way.search(texts[number % len(texts)])
    seconds: dict[Way, list[float]] = {way: [] for way in given}
    cpu_seconds: dict[Way, list[float]] = {way: [] for way in given}
    draw = random.Random(SEED)
    for number in range(count):
        # A stack's first search after the other stack's finds processes that have slept. In one
        # order, however rotated, it would be by the same way each time.
        for way in draw.sample(given, len(given)):
            cpu_start = way.cpu_seconds()
            start_time = time.perf_counter()
            way.search(texts[number % len(texts)])
            seconds[way].append(time.perf_counter() - start_time)
            cpu_seconds[way].append(way.cpu_seconds() - cpu_start)
    of_grpc = {way.shape: way for way in given if way.name == GRPC}
    return [
        {
            "shape": way.shape,
            "way": way.name,
            "p5_ms": _ms(sorted(seconds[way])[count // 20]),
            "p50_ms": _ms(statistics.median(seconds[way])),
            "p50_over_grpc_ms": _median_over(seconds[way], seconds[of_grpc[way.shape]]),
            "cpu_ms": _ms(statistics.fmean(cpu_seconds[way])),
            "cpu_over_grpc_ms": _median_over(cpu_seconds[way], cpu_seconds[of_grpc[way.shape]]),
        }
        for way in given
    ]


def _median_over(taken: Sequence[float], base: Sequence[float]) -> float:
    return _ms(statistics.median(map(float.__sub__, taken, base)))


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 2)


def _run_nanoseconds(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):  # A thread that has ended.
        return 0


def run(arguments: argparse.Namespace) -> Row:
    """Returns the whole result."""
    torch.set_num_threads(1)
    records = list(scene_records("test", 3, arguments.scenes))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        repository = Path(folder) / "model_repository"
        export_model(save_small(Path(folder) / "checkpoint"), repository, Precision.FP32)
        stacks: dict[str, LocalStack] = {}
        for shape in arguments.shapes:
            stack = LocalStack(
                Path(folder) / shape,
                repository,
                Ports.free(1),
                gateway=True,
                merged=shape == "merged",
            )
            opened.enter_context(stack).start()
            store_pictures(stack.address, INDEX_ID, records)
            stacks[shape] = stack
        # Only now, as a connection without a request is closed.
        given = [
            Way(shape, name, search, _pids(stack))
            for shape, stack in stacks.items()
            for name, search in ways(stack).items()
        ]
        rows = measure(given, short_texts(records), arguments.searches)
    return {
        "benchmark": "gateway",
        "searches": arguments.searches,
        "scenes": arguments.scenes,
        "load_average": os.getloadavg()[0],
        "ways": rows,
    }


def _pids(stack: LocalStack) -> tuple[int, ...]:
    return tuple(each.pid for each in stack.endpoints() if each.name != "triton")


def table(result: Row) -> str:
    """Returns the figures as Markdown."""
    rows = [
        "| shape | way | p5 ms | p50 ms | p50 of the difference to gRPC, ms "
        "| CPU of the services, ms | p50 of its difference to gRPC, ms |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows += [f"| {' | '.join(map(str, each.values()))} |" for each in result["ways"]]
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="searches by HTTP and by gRPC")
    parser.add_argument("--searches", type=int, default=200, help="by each way")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--scenes", type=int, default=48)
    result = run(parser.parse_args())
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
