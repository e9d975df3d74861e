"""Watches Tandem through its own Prometheus while things go wrong: what is seen, and what is not.

    python -m benchmarks.runs.watch [--speed 20] [--folder FOLDER] [--picture FOLDER]

`tandem up --monitoring`, a load, and the troubles of watch/troubles.py. Then every dashboard's
every query, every alert, every metric that something names, and the traces that exemplars point to
are held to what that Prometheus has. Prints one JSON line and a report; exits 1 where something
lacks. About eight minutes. `--folder` keeps the data, for `watch/drawing.py` to draw from.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench.overload import Sender
from benchmarks.runs.watching.findings import Row, checked, lacks, report
from benchmarks.runs.watching.otlp_receiver import OtlpReceiver
from benchmarks.runs.watching.prometheus_api import PrometheusApi
from benchmarks.runs.watching.running_stack import RunningStack
from benchmarks.runs.watching.spare_shard import SpareShard
from benchmarks.runs.watching.troubles import (
    Background,
    damage_stores,
    encode,
    fill_small_store,
    misguide_index,
    stop_in_turn,
)
from tandem.client import NO_RETRIES, Client
from tandem.corpus.scenes.records import scene_records
from tandem.errors import TandemError
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.stack.free_ports import free_ports
from tandem.stack.prometheus import MAX_SPEED

INDEX_ID = "watched"
SCENE_COUNT = 200
RATE = 6.0
DEADLINE_SECONDS = 4.0
SAMPLE_SHARE = 0.2
# Longest wait, at the end, for alerts to resolve.
RESOLVE_SECONDS = 200.0
# Spans and scrapes of the last moments.
_SETTLE_SECONDS = 8.0
_HISTOGRAM = "tandem_rpc_duration_seconds_bucket"


@dataclass
class Journal:
    """What was done when, by unix time."""

    start_time: float = field(default_factory=time.time)
    events: list[tuple[float, str]] = field(default_factory=list)

    def say(self, what: str) -> None:
        """Notes it, and prints it on stderr."""
        self.events.append((time.time(), what))
        print(f"{time.time() - self.start_time:6.1f} s  {what}", file=sys.stderr)


@contextmanager
def loaded(stack: RunningStack, texts: Sequence[str], pictures: Sequence[bytes]) -> Iterator[None]:
    """Runs searches of every kind, and a few writes, while it is entered."""
    background = Background()
    address = stack.addresses["orchestrator"]
    with Client(address, timeout_seconds=DEADLINE_SECONDS, retries=NO_RETRIES) as client:
        turns = iter(range(10**9))

        def look() -> None:
            turn = next(turns)
            picture = pictures[turn % len(pictures)]
            try:
                client.search(picture, index_id=INDEX_ID)
                client.search(texts[turn % len(texts)], index_id=INDEX_ID, content_included=True)
            except TandemError:
                pass

        def write() -> None:
            turn = next(turns)
            try:
                list(client.ingest([(f"new-{turn}", texts[turn % len(texts)])], index_id=INDEX_ID))
                client.remove([f"new-{turn}"], index_id=INDEX_ID)
            except TandemError:
                pass

        sender = Sender(stack.addresses["orchestrator"], texts, DEADLINE_SECONDS, None, INDEX_ID)
        background.repeat(look, 1.0)
        background.repeat(write, 3.0)
        background.repeat(lambda: sender.send(RATE, 10.0), 0.05)
        try:
            yield
        finally:
            background.end()


def run(stack: RunningStack, receiver: OtlpReceiver, journal: Journal, arguments: Row) -> Row:
    """Does it all; returns the result."""
    records = list(scene_records("test", 5, SCENE_COUNT))
    captions = [caption.text for record in records for caption in record.captions]
    # Each its own, or the caches would answer.
    texts = [f"{caption} {number}" for number, caption in enumerate(captions * 8)]
    pictures = [record.image.read() for record in records]
    with Client(stack.addresses["orchestrator"], timeout_seconds=60.0) as client:
        named = zip((record.record_id for record in records), pictures, strict=True)
        assert not [each for each in client.ingest(named, index_id=INDEX_ID) if each.error]
    journal.say(f"{len(records)} pictures stored")
    sender = Sender(stack.addresses["orchestrator"], texts, DEADLINE_SECONDS, None, INDEX_ID)
    sender.send(4.0, 5.0)
    latencies, gap = exporter_latencies(sender, receiver, journal)
    spare = Background()
    targets = stack.data_folder / "prometheus" / "targets"
    folder = stack.data_folder / "spare"
    shards = {
        name: SpareShard(name, folder, targets)
        for name in ("small", "misguided", "old-snapshot", "bad-value", "bad-page")
    }
    spare.begin(lambda: fill_small_store(shards["small"], 110.0))
    spare.begin(lambda: misguide_index(shards["misguided"], 215.0))
    spare.begin(
        lambda: damage_stores(shards["old-snapshot"], shards["bad-value"], shards["bad-page"])
    )
    short = Background()
    short.repeat(encode(stack.addresses["encoder"], ["cat"] * 32), 0.3)
    with loaded(stack, texts, pictures):
        stop_in_turn(stack, journal.say)
        short.end()
        journal.say("overload: ten times the load, and of the encoder")
        flood = Background()
        for _ in range(12):
            flood.repeat(encode(stack.addresses["encoder"], captions[:64]), 0.0)
        overload = sender.send(120.0, 45.0)
        flood.end()
        journal.say("back to the usual load")
        api = PrometheusApi(stack.prometheus_url, arguments["scrape_seconds"])
        wait_until_resolved(api, journal)
        spare.end()
        journal.say("spare shards gone")
        wait_until_resolved(api, journal)
    time.sleep(_SETTLE_SECONDS)
    end_time = time.time()
    result = checked(api, journal.start_time, end_time, arguments["scrape_seconds"])
    exemplars = api.exemplar_times(_HISTOGRAM, journal.start_time, end_time)
    result |= {
        "exporter": latencies,
        "overload": {key: overload[key] for key in ("codes", "ok_p50_ms", "ok_p99_ms")},
        "exemplars": len(exemplars),
        # Spans of the time without a collector are lost, as they should be.
        "exemplars_without_trace": sorted(
            trace
            for trace, seen_time in exemplars.items()
            if trace not in receiver.services_of_trace and not gap[0] - 5 <= seen_time <= gap[1] + 5
        ),
        "traces": len(receiver.services_of_trace),
        "traces_through_all_services": sum(
            len(services) == 4 for services in receiver.services_of_trace.values()
        ),
        "spans": receiver.span_count,
        "faults_of_the_run": spare.faults,
        "events": [(round(when - journal.start_time, 1), what) for when, what in journal.events],
        "start_time": journal.start_time,
        "end_time": end_time,
    }
    return result


def exporter_latencies(
    sender: Sender, receiver: OtlpReceiver, journal: Journal
) -> tuple[list[Row], tuple[float, float]]:
    """Returns searches' times with and without a collector, alternating, and when it was away."""
    rows: list[Row] = []
    begin_time = 0.0
    for is_there in (True, False, True):
        journal.say(f"collector {'there' if is_there else 'away'}")
        if not is_there:
            receiver.stop()
            begin_time = time.time()
        seen = sender.send(RATE, 12.0)
        told = {key: seen[key] for key in ("ok_p50_ms", "ok_p99_ms", "codes")}
        rows.append({"collector": is_there} | told)
        if not is_there:
            receiver.start()
            gap = (begin_time, time.time())
    return rows, gap


def wait_until_resolved(api: PrometheusApi, journal: Journal) -> None:
    """Returns once no alert fires, or it has waited long enough."""
    end_time = time.monotonic() + RESOLVE_SECONDS
    while time.monotonic() < end_time:
        now = time.time()
        firings = api.firings(now - 4 * api.step_seconds, now)
        if not any(each[-1].end_time is None for each in firings.values()):
            return
        time.sleep(2.0)
    journal.say(f"still firing: {', '.join(sorted(firings))}")


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description="watches Tandem while things go wrong")
    parser.add_argument("--speed", type=float, default=20.0, help=f"of the rules, 1 to {MAX_SPEED}")
    parser.add_argument("--folder", type=Path, help="keeps the data here")
    parser.add_argument("--picture", type=Path, help="draws the dashboards into this folder")
    arguments = parser.parse_args()
    # Otherwise a run that is stopped early would leave all that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        [port] = free_ports(1)
        traces = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_TRACES_SAMPLER_ARG": str(SAMPLE_SHARE),
        }
        options = ["--alert-speed", str(arguments.speed)]
        options += ["--model-repository", str(folder / "model_repository")]
        options += ["--checkpoint", str(default_checkpoint())]
        with OtlpReceiver(port) as receiver, RunningStack(folder, options, traces) as stack:
            journal = Journal()
            stack.wait_until_up()
            journal.say("everything is up")
            scrape_seconds = min(5.0, 300.0 / arguments.speed / 7.5)
            result = run(stack, receiver, journal, {"scrape_seconds": scrape_seconds})
            result["speed"] = arguments.speed
            result["stack_is_still_up"] = stack.is_running()
            if arguments.picture:
                from benchmarks.runs.watching.drawing import draw_all

                api = PrometheusApi(stack.prometheus_url, scrape_seconds)
                draw_all(
                    api,
                    result["start_time"],
                    result["end_time"],
                    arguments.picture,
                    events=journal.events,
                )
    print(json.dumps(result))
    print(report(result))
    found = lacks(result)
    print("\n".join(found) if found else "nothing lacks")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
