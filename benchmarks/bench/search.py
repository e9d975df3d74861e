"""A served search compared with the same arithmetic in one process: what the services cost.

    python -m benchmarks.bench.search [--model default|large] [--queries 200] [--merged]

Both sides run the same exported TorchScript on the same number of threads over the same items:
tokenize, embed the text, search FAISS flat, score 20 pairs, sort. The served side adds what it is
for: four services, Triton, durable storage, and a network between them; with --merged the services
are in one process. Both are warmed up, and they take turns within the run, so that another load on
the machine hits both. For many clients the process has a third side: the queries that wait are put
together by hand. One client also sends its queries in calls of search_batch. Caches are off.

`large` has 12 layers of 768 and random weights: its answers mean nothing, its arithmetic does. Of
`one_layer`, which has the first of them alone, most of a search's time is the services' own.
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.support.device_search import K
from benchmarks.support.in_process import RETURN_N, InProcess, keep_memory
from benchmarks.support.large_model import LAYER_COUNT, export_large
from benchmarks.support.served_times import Look, cpu_spent, spent
from tandem.client import Client, Search, SearchResult
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model
from tandem.stack.stack import LocalStack, Ports

THREAD_COUNT = 2
LAYER_COUNTS = {"large": LAYER_COUNT, "one_layer": 1}
CLIENT_COUNTS = (1, 16)
BATCH_SEARCH_COUNT = 12
# By hand, the pairs of how many queries go into one batch is tried out.
PAIR_BATCH_SIZES = (K, 3 * K, 128)
AGREEMENT_COUNT = 20

Ask = Callable[[str], object]


@dataclass
class Timing:
    """Seconds of each search of one side at one number of clients, and of the whole."""

    seconds: list[float] = field(default_factory=list)
    wall_seconds: float = 0.0

    def add(self, other: "Timing") -> None:
        """Joins another round's."""
        self.seconds += other.seconds
        self.wall_seconds += other.wall_seconds

    def summary(self) -> dict[str, float]:
        """Returns p10, p50, p99 and mean in ms and searches a second."""
        ordered = sorted(self.seconds)
        return {
            "p10_ms": 1e3 * ordered[int(0.1 * len(ordered))],
            "p50_ms": 1e3 * statistics.median(ordered),
            "p99_ms": 1e3 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
            "mean_ms": 1e3 * statistics.mean(ordered),
            "searches_per_second": len(ordered) / self.wall_seconds,
        }


def measure(search: Ask, queries: Sequence[str], client_count: int) -> Timing:
    """Runs all queries from `client_count` threads, each asking one after another."""
    next_number = count()
    lock = threading.Lock()

    def ask(_: int) -> list[float]:
        seconds: list[Any] = []
        while True:
            with lock:
                number = next(next_number)
            if number >= len(queries):
                return seconds
            start_time = time.perf_counter()
            search(queries[number])
            seconds.append(time.perf_counter() - start_time)

    start_time = time.perf_counter()
    with ThreadPoolExecutor(client_count) as clients:
        parts = list(clients.map(ask, range(client_count)))
    return Timing([each for part in parts for each in part], time.perf_counter() - start_time)


def measure_batches(client: Client, queries: Sequence[str]) -> Timing:
    """Runs all queries in calls of search_batch; each takes as long as its batch."""
    timing = Timing()
    for start in range(0, len(queries), BATCH_SEARCH_COUNT):
        batch = queries[start : start + BATCH_SEARCH_COUNT]
        start_time = time.perf_counter()
        outcomes = client.search_batch([Search(text, index_id="bench") for text in batch])
        seconds = time.perf_counter() - start_time
        failed = [each for each in outcomes if not isinstance(each, SearchResult)]
        assert not failed, failed[0]
        timing.add(Timing([seconds] * len(batch), seconds))
    return timing


def measure_by_hand(local: InProcess, queries: Sequence[str], together: int, pairs: int) -> Timing:
    """Runs all queries, `together` at a time; each takes as long as its batch."""
    timing = Timing()
    for start in range(0, len(queries), together):
        batch = queries[start : start + together]
        start_time = time.perf_counter()
        local.search_together(batch, pairs)
        seconds = time.perf_counter() - start_time
        timing.add(Timing([seconds] * len(batch), seconds))
    return timing


class Run:
    """Both sides, warm."""

    def __init__(self, stack: LocalStack, client: Client, local: InProcess) -> None:
        """Takes sides that have the same items."""
        self._stack, self._client, self._local = stack, client, local
        self._answers: list[SearchResult] = []
        self.timings: dict[tuple[str, int], Timing] = {}
        self.spent: dict[int, list[dict[str, float]]] = {}
        self.cpu: dict[int, list[dict[str, float]]] = {}
        self.batch_cpu: list[dict[str, float]] = []
        self.stage_gaps_ms: list[float] = []
        self.pair_batch_size = 0

    def agreement(self, queries: Sequence[str]) -> float:
        """Returns which share of the served answers' items the process has in its own."""
        shares = [
            len({item.item_id for item in self._served(text).items} & set(self._local.search(text)))
            / RETURN_N
            for text in queries
        ]
        return statistics.mean(shares)

    def warm(self, queries: Sequence[str], together: int) -> None:
        """Runs each side, and finds how pairs are best batched by hand."""
        measure(self._served, queries, 2)
        measure(self._local.search, queries, 1)
        batch = [queries[number % len(queries)] for number in range(together)]
        rates = {
            size: measure_by_hand(self._local, batch, together, size).summary()["p50_ms"]
            for size in PAIR_BATCH_SIZES
            for _ in range(2)
        }
        self.pair_batch_size = min(rates, key=rates.__getitem__)

    def round(self, queries: Sequence[str], clients: int) -> None:
        """Lets each side run all queries once."""
        before = Look.at(self._stack)
        self._answers.clear()
        served = measure(self._served, queries, clients)
        after = Look.at(self._stack)
        self._note("served", clients, served)
        shard_count = len(self._stack.ports.index)
        mean_ms = served.summary()["mean_ms"]
        parts = spent(before, after, shard_count, len(queries), mean_ms)
        self.spent.setdefault(clients, []).append(parts)
        self.cpu.setdefault(clients, []).append(cpu_spent(before, after, len(queries)))
        self.stage_gaps_ms += [_gap_ms(answer) for answer in self._answers]
        self._note("in_process", clients, measure(self._local.search, queries, clients))
        if clients == 1:
            before = Look.at(self._stack)
            self._note("batches", clients, measure_batches(self._client, queries))
            self.batch_cpu.append(cpu_spent(before, Look.at(self._stack), len(queries)))
        if clients > 1:
            by_hand = measure_by_hand(self._local, queries, clients, self.pair_batch_size)
            self._note("by_hand", clients, by_hand)

    def _served(self, text: str) -> SearchResult:
        answer = self._client.search(text, index_id="bench")
        self._answers.append(answer)
        return answer

    def _note(self, side: str, clients: int, timing: Timing) -> None:
        self.timings.setdefault((side, clients), Timing()).add(timing)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, arguments.scenes))
    queries = [records[n % len(records)].captions[n % 3].text for n in range(arguments.queries)]
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repository"
        precision = Precision(arguments.precision or native_precision())
        manifest = _export(arguments.model, repository, precision)
        local = InProcess(repository, manifest, THREAD_COUNT)
        local.add(records)
        ports = Ports.free(arguments.shards)
        data, merged = Path(folder) / "data", arguments.merged
        with LocalStack(data, repository, ports, caches=False, merged=merged) as stack:
            stack.start()
            with Client(stack.address, timeout_seconds=120.0) as client:
                pictures = ((record.record_id, record.image.read()) for record in records)
                # Small batches: of the large model's, several are in progress, each with its time.
                outcomes = client.ingest(pictures, index_id="bench", batch_item_count=8)
                refused = [outcome for outcome in outcomes if outcome.error]
                assert not refused, refused[0].error
                both = Run(stack, client, local)
                both.warm(queries[:20], max(CLIENT_COUNTS))
                agreement = both.agreement(queries[:AGREEMENT_COUNT])
                for _ in range(arguments.rounds):
                    for clients in CLIENT_COUNTS:
                        both.round(queries, clients)
    return _result(arguments, manifest, both, agreement)


def _export(model: str, repository: Path, precision: Precision) -> Manifest:
    if model in LAYER_COUNTS:
        return export_large(repository, precision, layer_count=LAYER_COUNTS[model])
    return export_model(default_checkpoint(), repository, precision)


def _gap_ms(answer: SearchResult) -> float:
    stages = answer.seconds
    named = stages.encode + stages.retrieve + stages.rerank + stages.rank + stages.fetch
    return 1e3 * (stages.total - named)


def _result(
    arguments: argparse.Namespace, manifest: Manifest, both: Run, agreement: float
) -> dict[str, object]:
    result: dict[str, object] = {
        "benchmark": "search",
        "model_name": arguments.model,
        "scenes": arguments.scenes,
        "queries_per_round": arguments.queries,
        "rounds": arguments.rounds,
        "shards": arguments.shards,
        "merged": arguments.merged,
        "threads": THREAD_COUNT,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "model": manifest.fingerprint[:12],
        "precision": manifest.precision,
        "answers_shared": agreement,
        "pair_batch_size_by_hand": both.pair_batch_size,
        "total_less_stages_ms_max": max(both.stage_gaps_ms),
    }
    for clients in CLIENT_COUNTS:
        sides = ("served", "in_process", "by_hand" if clients > 1 else "batches")
        summaries = {side: both.timings[side, clients].summary() for side in sides}
        served, local = summaries["served"], summaries["in_process"]
        result[f"clients_{clients}"] = {
            **summaries,
            "p50_ratio": served["p50_ms"] / local["p50_ms"],
            "p10_ratio": served["p10_ms"] / local["p10_ms"],
            "spent_ms": _means(both.spent[clients]),
            "cpu_ms": _means(both.cpu[clients]),
        }
    rates = [both.timings["served", n].summary()["searches_per_second"] for n in CLIENT_COUNTS]
    by_hand = both.timings["by_hand", CLIENT_COUNTS[-1]].summary()["searches_per_second"]
    result["throughput_gain"] = rates[-1] / rates[0]
    batches = both.timings["batches", 1].summary()["searches_per_second"]
    result["batch_throughput_gain"] = batches / rates[0]
    result["batch_cpu_ms"] = _means(both.batch_cpu)
    result["throughput_of_by_hand"] = rates[-1] / by_hand
    return result


def _means(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.mean(each[name] for each in rounds) for name in rounds[0]}


def table(result: dict[str, object]) -> str:
    """Returns the figures as Markdown."""
    rows = [
        "| clients | side | p10 ms | p50 ms | p99 ms | searches/s |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for clients in CLIENT_COUNTS:
        figures = result[f"clients_{clients}"]
        assert isinstance(figures, dict)
        rows += [
            f"| {clients} | {side.replace('_', ' ')} | {each['p10_ms']:.1f} "
            f"| {each['p50_ms']:.1f} | {each['p99_ms']:.1f} "
            f"| {each['searches_per_second']:.1f} |"
            for side in ("served", "batches", "in_process", "by_hand")
            if (each := figures.get(side))
        ]
        rows.append(
            f"| {clients} | served : in process | {figures['p10_ratio']:.2f} "
            f"| {figures['p50_ratio']:.2f} | | |"
        )
    figures = result["clients_1"]
    assert isinstance(figures, dict)
    rows += ["", "| one client's search, mean | ms |", "| --- | ---: |"]
    rows += [f"| {name} | {ms:.2f} |" for name, ms in figures["spent_ms"].items()]
    rows += ["", "| CPU of a search, by process | 1 client, ms | in batches, ms | 16 clients, ms |"]
    rows += ["| --- | ---: | ---: | ---: |"]
    many, in_batches = result[f"clients_{CLIENT_COUNTS[-1]}"], result["batch_cpu_ms"]
    assert isinstance(many, dict)
    assert isinstance(in_batches, dict)
    rows += [
        f"| {name} | {ms:.1f} | {in_batches[name]:.1f} | {many['cpu_ms'][name]:.1f} |"
        for name, ms in figures["cpu_ms"].items()
    ]
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then tables."""
    parser = argparse.ArgumentParser(description="served search against the same work in process")
    parser.add_argument("--model", choices=("default", *LAYER_COUNTS), default="default")
    parser.add_argument("--precision", choices=tuple(Precision), default=None)
    parser.add_argument("--scenes", type=int, default=1_000)
    parser.add_argument("--queries", type=int, default=200, help="of a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--merged", action="store_true", help="as `tandem up --merged`")
    arguments = parser.parse_args()
    keep_memory()
    result = run(arguments)
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
