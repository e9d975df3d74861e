"""What a search over HTTP takes over the same search by gRPC.

    python -m benchmarks.bench.gateway [--searches 300] [--scenes 48]

The whole system on this machine, with a model that computes in a millisecond, so that the doors
are a large part. Every search is made by each way in turn, from one caller that keeps its
connections, and ends with the answer parsed. Differences are of neighbours in time. CPU is the
gateway's own, of all its threads, by the scheduler's count.
"""

import argparse
import http.client
import json
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import torch

from benchmarks.support.small_model import save_small, short_texts
from tandem.client import Client
from tandem.corpus.scenes.records import scene_records
from tandem.local.stack import LocalStack, Ports
from tandem.model_io.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub

INDEX_ID = "scenes"
CONNECT_PATH = "/tandem.v1.SearchService/SearchItems"
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
        "gRPC": lambda text: stub.SearchItems(request(text)),
        "/v1/search": by_rest,
        "Connect, JSON": by_json,
        "Connect, protobuf": by_proto,
    }


def measure(
    searches: Mapping[str, Search], texts: Sequence[str], count: int, gateway_pid: int
) -> list[Row]:
    """Returns the figures of each way, which take turns."""
    for number in range(WARM_COUNT):
        for search in searches.values():
            search(texts[number % len(texts)])
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    cpu_seconds = dict.fromkeys(searches, 0.0)
    names = list(searches)
    for number in range(count):
        # The first way of a turn finds processes that have slept longer, so each way has its turns.
        first_place = number % len(names)
        for name in [*names[first_place:], *names[:first_place]]:
            cpu_start = _cpu_seconds(gateway_pid)
            start_time = time.perf_counter()
            searches[name](texts[number % len(texts)])
            seconds[name].append(time.perf_counter() - start_time)
            cpu_seconds[name] += _cpu_seconds(gateway_pid) - cpu_start
    [first, *_] = seconds.values()
    return [
        {
            "way": name,
            "p5_ms": _ms(sorted(taken)[len(taken) // 20]),
            "p50_ms": _ms(statistics.median(taken)),
            "p50_over_grpc_ms": _ms(statistics.median(map(float.__sub__, taken, first))),
            "gateway_cpu_ms": _ms(cpu_seconds[name] / count),
        }
        for name, taken in seconds.items()
    ]


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 2)


def _cpu_seconds(pid: int) -> float:
    """Returns what all threads of a process have run, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return 1e-9 * sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def run(arguments: argparse.Namespace) -> Row:
    """Returns the whole result."""
    torch.set_num_threads(1)
    records = list(scene_records("test", 3, arguments.scenes))
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repository"
        export_model(save_small(Path(folder) / "checkpoint"), repository, Precision.FP32)
        with LocalStack(Path(folder) / "data", repository, Ports.free(1), gateway=True) as stack:
            stack.start()
            pictures = ((record.record_id, record.image.read()) for record in records)
            with Client(stack.address, timeout_seconds=60.0) as client:
                refused = [
                    each for each in client.ingest(pictures, index_id=INDEX_ID) if each.error
                ]
            assert not refused, refused[0].error
            [pid] = [each.pid for each in stack.endpoints() if each.name == "gateway"]
            rows = measure(ways(stack), short_texts(records), arguments.searches, pid)
    return {
        "benchmark": "gateway",
        "searches": arguments.searches,
        "scenes": arguments.scenes,
        "ways": rows,
    }


def table(result: Row) -> str:
    """Returns the figures as Markdown."""
    rows = [
        "| way | p5 ms | p50 ms | p50 of the difference to gRPC, ms | CPU of the gateway, ms |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    rows += [f"| {' | '.join(map(str, each.values()))} |" for each in result["ways"]]
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="searches by HTTP and by gRPC")
    parser.add_argument("--searches", type=int, default=300, help="by each way")
    parser.add_argument("--scenes", type=int, default=48)
    result = run(parser.parse_args())
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
