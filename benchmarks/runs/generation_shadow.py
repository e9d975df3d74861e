"""Promotes a generation with a fault, and measures when it is rolled back by itself.

    python -m benchmarks.runs.generation_shadow [--fault failing|slow|emptying|lone|none]

A whole Tandem on this machine with two small models and two shards. Two callers search with
min_probability, one by seven clients and one by another; half of the texts were asked before, so
that caches answer, half never. The fault of the second generation, which no operator rolls back:

- failing: its encoder is ended once it serves;
- slow: its model has three layers 256 wide instead of one of 32;
- emptying: its calibration gives each match so low a probability that nothing is left;
- lone: the same, but the caller of seven clients alone searches with min_probability. It may not
  have the other one's model rolled back;
- none: it is equal.

Prints one JSON line: the seconds from the fault until the first generation serves again, the reason
in the record, and what the clients counted meanwhile. Where none is due, it watches for 120 s that
none comes. Exits 1 otherwise.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.runs import generation_kills as kills
from benchmarks.support.small_model import SMALL, save_small
from tandem.client import Access, AsyncClient
from tandem.contract.model_description import ProbabilityCalibration
from tandem.errors import TandemError
from tandem.model_io.repository.calibration import (
    CALIBRATION_NAME,
    Calibration,
    write_calibrations,
)
from tandem.model_io.repository.manifest import read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.stack.next_models import NextModels
from tandem.stack.stack import LocalStack

ALLOWED_SECONDS = 120.0
KEPT = ("lone", "none")
CALLERS = {"many": 7, "few": 1}
"""The clients of each."""
SCALING_BIAS = 20.0
"""More than any logit of these models, so that a probability is about 0 or 1."""
WORDS = (
    "two",
    "one",
    "three",
    "four",
    "red",
    "blue",
    "green",
    "dogs",
    "cat",
    "cars",
    "tree",
    "left",
)
"""The model's own; to it, any others are alike."""
_ASKED_COUNT = 10
_BEFORE_SECONDS = 10.0


async def search(
    client: AsyncClient,
    load: kills.Load,
    numbers: Iterator[int],
    counts: Counter[str],
    min_probability: float | None,
) -> None:
    """Searches until cancelled, every other time with a text that was asked before."""
    for number in numbers:
        text = load.texts[number % _ASKED_COUNT]
        if number % 2:
            text = " ".join(random.choices(WORDS, k=8))
        start_time = time.monotonic()
        try:
            answer = await client.search(
                text, index_id=kills.ALIAS, rerank_k=10, min_probability=min_probability
            )
        except TandemError as error:
            counts[f"search: {error.reason}"] += 1
            await asyncio.sleep(0.05)
            continue
        counts["searches"] += 1
        counts["empty"] += not answer.items
        counts["milliseconds"] += round(1_000 * (time.monotonic() - start_time))


async def watched(
    stack: LocalStack, following: NextModels, fault: str, tokens: dict[str, str], item_count: int
) -> dict[str, Any]:
    """Promotes, brings the fault about, and returns what became of it."""
    operator, load = kills.Operator(stack), kills.Load([])
    counts = {caller: {when: Counter[str]() for when in ("before", "after")} for caller in CALLERS}
    async with AsyncExitStack() as opened:

        async def client_of(caller: str) -> AsyncClient:
            access = Access(token=tokens[caller])
            made = AsyncClient(stack.address, timeout_seconds=30.0, access=access)
            return await opened.enter_async_context(made)

        await kills.fill(await client_of("many"), load, item_count)
        numbers = itertools.count()

        async def searching(when: str) -> list[asyncio.Task[None]]:
            tasks = []
            for caller, count in CALLERS.items():
                is_lone = fault == "lone" and caller == "few"
                lowest = None if is_lone else 0.5
                for _ in range(count):
                    found = counts[caller][when]
                    asking = search(await client_of(caller), load, numbers, found, lowest)
                    tasks.append(asyncio.create_task(asking))
            return tasks

        async def stop(tasks: list[asyncio.Task[None]]) -> None:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if not isinstance(ended, asyncio.CancelledError):
                    raise RuntimeError("a client ended") from ended

        tasks = await searching("before")
        await asyncio.sleep(_BEFORE_SECONDS)
        await stop(tasks)
        for number, (name, *options) in enumerate(
            (("create", "--wait"), ("promote", "--ungated", "a run"))
        ):
            if not await asyncio.to_thread(operator.run, number, name, kills.ALIAS, *options):
                raise RuntimeError(f"{name} failed: {dict(operator.refusals)}")
            print(f"{name} done", file=sys.stderr, flush=True)
        tasks = await searching("after")
        start_time = time.monotonic()
        if fault == "failing":
            await asyncio.sleep(2.0)
            start_time = time.monotonic()
            following.kill_service("next-encoder")
        serving, seconds = "", 0.0
        while serving != kills.ALIAS and seconds < ALLOWED_SECONDS:
            await asyncio.sleep(1.0)
            [alias] = await asyncio.to_thread(operator.aliases, 0) or [{}]
            serving, seconds = alias.get("serving_id", ""), time.monotonic() - start_time
        await stop(tasks)
    return {
        "run": "generation shadow",
        "fault": fault,
        "serving": serving,
        "seconds": round(seconds, 1),
        "alias": {name: each for name, each in alias.items() if name != "generations"},
        "clients": counts,
    }


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    is_slow, is_emptying = asked.fault == "slow", asked.fault in ("emptying", "lone")
    following_config = replace(SMALL, layer_count=3, width=256) if is_slow else SMALL
    following_bias = -SCALING_BIAS if is_emptying else SCALING_BIAS
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        repositories = [folder / name for name in kills.REPOSITORIES]
        models = (SMALL, 0.0, SCALING_BIAS), (following_config, 1.0, following_bias)
        for repository, (config, noise, bias) in zip(repositories, models, strict=True):
            checkpoint = save_small(folder / "checkpoint", config, word_noise=noise)
            export_model(checkpoint, repository, Precision.FP32)
            fingerprint = read_manifest(repository).fingerprint
            scaling = Calibration(fingerprint, ProbabilityCalibration(1.0, bias), None)
            write_calibrations(repository / CALIBRATION_NAME, [scaling])
        tokens = {name: secrets.token_urlsafe(32) for name in (*CALLERS, "operator")}
        os.environ["TANDEM_TOKEN"] = tokens["operator"]
        (folder / "tokens.toml").write_text(
            "".join(
                f'[tokens.{name}]\nsha256 = "{sha256(token.encode()).hexdigest()}"\n'
                'scopes = ["search", "write", "admin"]\nindexes = ["*"]\n'
                for name, token in tokens.items()
            )
        )
        token_file = str(folder / "tokens.toml")
        stack, following = kills.started(opened, folder, ACCESS_TOKEN_FILE=token_file)
        return asyncio.run(watched(stack, following, asked.fault, tokens, asked.items))


def main() -> None:
    """Prints the result, and exits 1 unless the fault, and it alone, was answered in time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    faults = ("failing", "slow", "emptying", *KEPT)
    parser.add_argument("--fault", choices=faults, default="failing")
    parser.add_argument("--items", type=int, default=300)
    asked = parser.parse_args()
    result = run(asked)
    print(json.dumps(result))
    sys.exit((result["serving"] == kills.ALIAS) is (asked.fault in KEPT))


if __name__ == "__main__":
    main()
