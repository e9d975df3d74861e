"""Measures what an operator's long measurement costs a caller that searches meanwhile.

    python -m benchmarks.runs.measurement_cost [--items 300] [--queries 300] [--concurrency 4]

A whole Tandem on this machine with the bundled model, two shards and two tokens. One caller sends a
new text every 0.5 s, one at a time: alone, while `tandem calibrate --index`, or `tandem evaluate
--queries`, runs with the operator's token, and alone again. Prints one JSON line: p50 and p99 of
each, how many searches were refused, how long each command took and what it ended with, and the
calls that the orchestrator refused at capacity. Exits 1 if a search or a command failed.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tandem.client import Access, Client
from tandem.corpus.scenes.records import scene_records
from tandem.errors import TandemError
from tandem.model_io.repository.precision import Precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model
from tandem.stack.stack import LocalStack, Ports

INDEX = "scenes"
PAUSE_SECONDS = 0.5
ALONE_COUNT = 30


def searched(
    client: Client, texts: Iterator[str], goes_on: Callable[[int], bool]
) -> dict[str, Any]:
    """Searches while `goes_on` of the number so far; returns counts and times."""
    seconds: list[float] = []
    refused: list[str] = []
    while goes_on(len(seconds) + len(refused)):
        start_time = time.monotonic()
        try:
            client.search(next(texts), index_id=INDEX)
            seconds.append(time.monotonic() - start_time)
        except TandemError as error:
            refused.append(error.reason)
        time.sleep(PAUSE_SECONDS)
    p50, p99 = (round(1_000 * float(np.percentile(seconds, q))) for q in (50, 99))
    return {"searches": len(seconds), "refused": refused, "p50_ms": p50, "p99_ms": p99}


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    records = list(scene_records("test", 5, asked.items))
    others = (
        f"{n} {each.captions[0].text}" for n, each in enumerate(scene_records("val", 9, 8_000))
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_model(default_checkpoint(), folder / "models", Precision.FP32)
        tokens = {name: secrets.token_urlsafe(32) for name in ("operator", "shop")}
        (folder / "tokens.toml").write_text(
            "".join(
                f'[tokens.{name}]\nsha256 = "{sha256(token.encode()).hexdigest()}"\n'
                'scopes = ["search", "write", "admin"]\nindexes = ["*"]\n'
                for name, token in tokens.items()
            )
        )
        with (folder / "queries.jsonl").open("w") as file:
            for n, each in enumerate(records[: asked.queries]):
                text, found = each.captions[0].text, [each.record_id]
                line = {"query_id": f"{n}", "text": text, "target": "image", "relevant": found}
                file.write(json.dumps(line) + "\n")
        settings = {"ACCESS_TOKEN_FILE": str(folder / "tokens.toml")}
        stack = LocalStack(folder / "data", folder / "models", Ports.free(2), settings=settings)
        with stack, Client(stack.address, access=Access(token=tokens["shop"])) as client:
            stack.start()
            pictures = ((each.record_id, each.image.read()) for each in records if each.image)
            assert not [e.error for e in client.ingest(pictures, index_id=INDEX) if e.error]
            at = [*("--address", stack.address, "--concurrency", str(asked.concurrency))]
            queries = ["--queries", str(folder / "queries.jsonl")]
            commands = {
                "calibrate": ["calibrate", "--index", INDEX, *queries, "--no-write", *at],
                "evaluate": ["evaluate", "--index", INDEX, *queries, *at],
            }
            times = {"alone": searched(client, others, ALONE_COUNT.__gt__)}
            for name, command in commands.items():
                started = time.monotonic()
                with subprocess.Popen(
                    [sys.executable, "-m", "tandem.cli", *command],
                    env=os.environ | {"TANDEM_TOKEN": tokens["operator"]},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                ) as process:
                    running = searched(client, others, lambda _: process.poll() is None)
                    assert process.stderr
                    why = process.stderr.read().splitlines()[-3:] if process.returncode else []
                seconds = round(time.monotonic() - started, 1)
                times[name] = running | {"seconds": seconds, "ended": process.returncode}
                if why:
                    times[name]["why"] = why
            times["alone again"] = searched(client, others, ALONE_COUNT.__gt__)
            with urllib.request.urlopen(stack.metrics_url("orchestrator")) as page:
                lines = page.read().decode().splitlines()
    refusals = [each for each in lines if each.startswith("tandem_admission_refused_total{")]
    return {
        "run": "measurement cost",
        "asked": vars(asked),
        "found": times,
        "at capacity": refusals,
    }


def main() -> None:
    """Prints the result, and exits 1 if a search was refused or a command failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--concurrency", type=int, default=4)
    result = run(parser.parse_args())
    print(json.dumps(result))
    found = result["found"].values()
    sys.exit(any(each["refused"] or each.get("ended") for each in found))


if __name__ == "__main__":
    main()
