"""What it costs to watch: a served search with metrics, traces and logs, and with none of them.

    python benchmarks/bench_watching.py [--searches 400] [--rounds 3] [--control]

Two local systems with the same items stand side by side. Each query is asked of both, one right
after the other, and which is first changes with every query; the figure is the median of the
ratios of such pairs, so that another load on the machine hits both. The watched system logs each
call, has its metrics scraped every five seconds (three times as often as our Prometheus does), and
sends the spans of one search in a hundred to a collector. The other runs `unwatched.py`. Caches are
off. `--control` compares two that are not watched: how far from 1 a ratio lies by chance.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from served_times import Look, cpu_spent

from tandem.client import Client
from tandem.corpus.scenes.records import scene_records
from tandem.local.stack import LocalStack, Ports
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale

SAMPLE_SHARE = 0.01
SCRAPE_SECONDS = 5.0
WARM_COUNT = 20
WATCHED, UNWATCHED = "watched", "unwatched"
_UNWATCHED_PROGRAM = str(Path(__file__).with_name("unwatched.py"))
_EXPORT = ("opentelemetry.proto.collector.trace.v1.TraceService", "Export")


class WatchedStack(LocalStack):
    """A system whose spans go to a collector."""

    def __init__(self, folder: Path, repository: Path, collector_address: str) -> None:
        super().__init__(folder, repository, Ports.free(2), caches=False)
        self._collector_address = collector_address

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Adds the collector."""
        arguments, variables = super().command(name)
        return arguments, variables | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self._collector_address}",
            "OTEL_TRACES_SAMPLER_ARG": str(SAMPLE_SHARE),
        }


class UnwatchedStack(LocalStack):
    """A system whose services tell nothing."""

    def __init__(self, folder: Path, repository: Path) -> None:
        super().__init__(folder, repository, Ports.free(2), caches=False)

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Runs the service inside of `unwatched.py`."""
        (_, module), variables = super().command(name)
        return [_UNWATCHED_PROGRAM, module], variables


@dataclass
class Sink:
    """A collector that counts and forgets."""

    address: str = ""
    export_count: int = 0


@contextmanager
def collecting() -> Iterator[Sink]:
    """Runs the collector on loopback."""
    sink = Sink()

    def export(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        sink.export_count += 1
        return b""

    service, method = _EXPORT
    handlers = {method: grpc.unary_unary_rpc_method_handler(export)}
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        sink.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield sink
        finally:
            server.stop(None).wait()


@contextmanager
def scraping(stack: LocalStack) -> Iterator[None]:
    """Reads every process's metrics again and again, as Prometheus does."""
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(SCRAPE_SECONDS):
            for name in (*stack.service_names(), "triton"):
                with urllib.request.urlopen(stack.metrics_url(name), timeout=5) as response:
                    response.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@dataclass
class Pairs:
    """Seconds of the same query at both sides, one after the other."""

    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)

    def summary(self, names: Sequence[str]) -> dict[str, object]:
        """Returns both sides' p50 and p90 in ms, and the ratio with its 95 % interval."""
        ratios = sorted(a / b for a, b in zip(self.first, self.second, strict=True))
        # Of a median: the ranks between which it lies, by the binomial distribution.
        reach = 0.98 * math.sqrt(len(ratios))
        low = ratios[max(0, math.floor(len(ratios) / 2 - reach))]
        high = ratios[min(len(ratios) - 1, math.ceil(len(ratios) / 2 + reach))]
        sides = zip(names, (self.first, self.second), strict=True)
        return {
            "pairs": len(ratios),
            "ms": {name: _percentiles_ms(seconds) for name, seconds in sides},
            "median_of_ratios": statistics.median(ratios),
            "interval": [low, high],
            "ratio_of_p50": statistics.median(self.first) / statistics.median(self.second),
        }


def measure(clients: Sequence[Client], queries: Sequence[str], pairs: Pairs) -> None:
    """Asks each query of both, the first and the second side in front by turns."""
    sides = ((clients[0], pairs.first), (clients[1], pairs.second))
    for number, query in enumerate(queries):
        for client, seconds in sides if number % 2 else reversed(sides):
            start_time = time.perf_counter()
            client.search(query, index_id="bench")
            seconds.append(time.perf_counter() - start_time)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, arguments.scenes))
    items = [(record.record_id, record.image.read()) for record in records]
    captions = [caption.text for record in records for caption in record.captions]
    queries = [captions[number % len(captions)] for number in range(arguments.searches)]
    names = ("unwatched, first", UNWATCHED) if arguments.control else (WATCHED, UNWATCHED)
    pairs = Pairs()
    with tempfile.TemporaryDirectory() as name, collecting() as sink:
        folder = Path(name)
        repository = folder / "model_repository"
        manifest = export_if_stale(default_checkpoint(), repository)
        first: LocalStack = (
            UnwatchedStack(folder / "first", repository)
            if arguments.control
            else WatchedStack(folder / "first", repository, sink.address)
        )
        with first, UnwatchedStack(folder / "second", repository) as second:
            stacks = (first, second)
            for stack in stacks:
                stack.start(timeout_seconds=240.0)
            clients = [Client(stack.address, timeout_seconds=120.0) for stack in stacks]
            for client in clients:
                refused = [o for o in client.ingest(items, index_id="bench") if o.error]
                assert not refused, refused[0].error
            measure(clients, queries[:WARM_COUNT], Pairs())
            before = [Look.at(stack) for stack in stacks]
            with scraping(first):
                for _ in range(arguments.rounds):
                    measure(clients, queries, pairs)
            after = [Look.at(stack) for stack in stacks]
            for client in clients:
                client.close()
            logged_bytes = sum(path.stat().st_size for path in folder.glob("first/logs/*"))
    count = len(pairs.first)
    cpu = [cpu_spent(a, b, count) for a, b in zip(before, after, strict=True)]
    return {
        "benchmark": "watching",
        "control": arguments.control,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "model": manifest.fingerprint[:12],
        "scenes": arguments.scenes,
        **pairs.summary(names),
        "cpu_ms": dict(zip(names, map(_ours, cpu), strict=True)),
        "span_exports": sink.export_count,
        "log_bytes_per_search": logged_bytes / count,
    }


def _ours(cpu: Mapping[str, float]) -> float:
    """Returns the services' CPU of a search; Triton has the same work at both sides."""
    return sum(ms for name, ms in cpu.items() if name not in ("triton", "models"))


def _percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50": 1e3 * statistics.median(ordered),
        "p90": 1e3 * ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
    }


def table(result: Mapping[str, object]) -> str:
    """Returns the figures as Markdown."""
    sides, cpu, interval = result["ms"], result["cpu_ms"], result["interval"]
    assert isinstance(sides, dict)
    assert isinstance(cpu, dict)
    assert isinstance(interval, list)
    rows = [
        "| side | p50 ms | p90 ms | services' CPU of a search, ms |",
        "| --- | ---: | ---: | ---: |",
    ]
    rows += [
        f"| {name} | {each['p50']:.1f} | {each['p90']:.1f} | {cpu[name]:.1f} |"
        for name, each in sides.items()
    ]
    return "\n".join(
        [
            *rows,
            "",
            f"median of {result['pairs']} paired ratios: {result['median_of_ratios']:.3f} "
            f"(95 %: {interval[0]:.3f} to {interval[1]:.3f}); "
            f"ratio of p50: {result['ratio_of_p50']:.3f}",
        ]
    )


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="what watching a search costs")
    parser.add_argument("--searches", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--control", action="store_true", help="neither side is watched")
    result = run(parser.parse_args())
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
