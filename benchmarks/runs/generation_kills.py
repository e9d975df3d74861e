"""Kills every process in turn while generations are made, promoted, rolled back and dropped.

    python -m benchmarks.runs.generation_kills [--kills 100] [--items 1000]
    python -m benchmarks.runs.generation_kills --kills 12 --items 200    # the short form

A whole Tandem on this machine with two small models, two shards and two orchestrators. Four clients
search, one writes, and an operator goes through `tandem index create`, `promote`, `rollback` and
`drop NAME@2` over and over, while `kill -9` ends one process after the other: both models'
encoders, rerankers and Tritons, the shards, the orchestrators. Each starts again a moment later. A
search or a write may fail while its process is away; what may not happen is counted:

- an acknowledged write that is not in each generation at the end, or a removed item that is;
- an answer with scores of both models: each match logit of the second is shifted by far;
- two orchestrators that name different serving generations, or an alias that none serves;
- anything that needs a hand: at the end a generation is made, promoted and rolled back.

Prints one JSON line, and exits 1 where one of these was found.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.small_model import save_small, short_texts
from tandem.client import AsyncClient
from tandem.corpus.scenes.records import scene_records
from tandem.errors import ItemCorrupt, TandemError
from tandem.local.item_store.item_store import ItemStore
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.stack.next_models import NextModels
from tandem.stack.stack import LocalStack, Ports

ALIAS = "kills"
SHARD_COUNT = 2
CLIENT_COUNT = 4
REPOSITORIES = ("models", "next_models")
LOGIT_STEP = 40.0  # Many times the spread of a model's own logits.
SERVING_SECONDS = 120.0
SETTLE_SECONDS = 180.0


@dataclass
class Load:
    """What the clients did, and what is acknowledged."""

    texts: Sequence[str]
    expected: dict[str, str] = field(default_factory=dict)
    """The text of each item that is stored, by acknowledgement."""
    removed: set[str] = field(default_factory=set)
    uncertain: set[str] = field(default_factory=set)
    """Items of which a write was not acknowledged: either outcome is right, also later."""
    counts: Counter[str] = field(default_factory=Counter)
    mixed: list[str] = field(default_factory=list)

    async def search(self, client: AsyncClient) -> None:
        """Searches until cancelled."""
        for number in itertools.count():
            try:
                text = self.texts[number % len(self.texts)]
                answer = await client.search(text, index_id=ALIAS, rerank_k=10)
            except TandemError as error:
                self.counts[f"search: {error.reason}"] += 1
                await asyncio.sleep(0.05)
                continue
            logits = [each.match_logit for each in answer.items if each.match_logit is not None]
            if len({logit > LOGIT_STEP / 2 for logit in logits}) > 1:
                self.mixed.append(f"{answer.model_fingerprint[:12]}: {logits}")
            self.counts["searches"] += 1
            self.counts["reranked searches"] += bool(logits)

    async def write(
        self, client: AsyncClient, writer: int = 0, pause_seconds: float = 0.05
    ) -> None:
        """Stores, replaces and removes items of this writer until cancelled."""
        for number in itertools.count():
            await asyncio.sleep(pause_seconds)
            item_id, text = (
                f"live-{writer}-{number // 3}",
                self.texts[(7 * number) % len(self.texts)],
            )
            # Stored, replaced, and one of four removed.
            is_removal = number % 12 == 2
            try:
                if is_removal:
                    await client.remove([item_id], index_id=ALIAS)
                else:
                    async for outcome in client.ingest([(item_id, text)], index_id=ALIAS):
                        if outcome.error is not None:
                            raise outcome.error
            except BaseException as error:
                self.uncertain.add(item_id)
                if not isinstance(error, TandemError):
                    raise
                self.counts[f"write: {error.reason}"] += 1
                continue
            self.counts["writes"] += 1
            self.removed.discard(item_id)
            self.expected[item_id] = text
            if is_removal:
                del self.expected[item_id]
                self.removed.add(item_id)


class Operator:
    """Goes through the commands of generations until the event is set."""

    def __init__(self, stack: LocalStack) -> None:
        self._addresses = [stack.address_of(name) for name in ("orchestrator", "orchestrator-1")]
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    def work(self, ending: threading.Event) -> None:
        """Makes a generation, promotes, rolls back, promotes again, and drops the other."""
        for number in itertools.count():
            if ending.is_set():
                return
            self.run(number, "create", ALIAS, "--wait")
            for step, kind in enumerate(("promote", "rollback", "promote")):
                if not ending.is_set():
                    reason = ["--ungated", "a run of kills"] if kind == "promote" else []
                    self.run(number + step, kind, ALIAS, *reason)
            self.drop_other(number)

    def run(self, number: int, *command: str) -> bool:
        """Returns whether a command of `tandem index` succeeded at one of the orchestrators."""
        address = self._addresses[number % 2]
        words = [sys.executable, "-m", "tandem.cli", "index", *command, "--address", address]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=1_800, check=False)
        except subprocess.TimeoutExpired:
            self.refusals[f"{command[0]}: no answer in 1,800 s"] += 1
            return False
        self.counts[command[0]] += done.returncode == 0
        if done.returncode:
            self.refusals[f"{command[0]}: {(done.stderr.splitlines() or [''])[-1][:120]}"] += 1
        return done.returncode == 0

    def drop_other(self, number: int) -> None:
        """Drops each generation that does not serve."""
        for alias in self.aliases(number % 2) or []:
            for each in alias["generations"]:
                if each["index_id"] != alias["serving_id"]:
                    name = each["index_id"]
                    self.run(number, "drop", name if "@" in name else f"{name}@1", "--yes")

    def aliases(self, place: int) -> list[dict[str, Any]] | None:
        """Returns what an orchestrator lists of the alias; None without an answer."""
        address = self._addresses[place]
        words = [sys.executable, "-m", "tandem.cli", "index", "list", "--json"]
        with suppress(subprocess.TimeoutExpired, ValueError, KeyError):
            done = subprocess.run(
                [*words, "--address", address],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            return [
                each for each in json.loads(done.stdout)["aliases"] if each["index_id"] == ALIAS
            ]
        return None

    def settled(self) -> dict[str, Any]:
        """Waits until both orchestrators list the same serving generation and one that follows."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            found = [each for place in range(2) for each in self.aliases(place) or []]
            if len(found) == len(self._addresses):
                one, other = found
                following = [
                    each for each in one["generations"] if each["state"].endswith("_FOLLOWING")
                ]
                is_close = len(following) == 1 and int(following[0]["lag_count"]) == 0
                if one["serving_id"] == other["serving_id"] and is_close:
                    return one
            if time.monotonic() > end:
                raise RuntimeError(f"the generations do not settle: {found}")
            time.sleep(1.0)


class Killer:
    """Ends processes by `kill -9`, and starts them again."""

    def __init__(self, stack: LocalStack, following: NextModels) -> None:
        self._stacks = [
            *((stack, name) for name in (*stack.service_names(), "triton")),
            *((following, name) for name in (*following.service_names(), "triton")),
        ]
        self.killed: Counter[str] = Counter()

    def kill(self, number: int) -> None:
        """Ends the process whose turn it is; returns when it serves again."""
        stack, name = self._stacks[number % len(self._stacks)]
        shown = f"next-{name}" if isinstance(stack, NextModels) and name == "triton" else name
        self.killed[shown] += 1
        if name == "triton":
            assert stack.triton
            os.kill(stack.triton.pid, signal.SIGKILL)
            stack.stop_triton()
            stack.start_triton()
            return
        stack.kill_service(name)
        stack.start_service(name)
        stack.wait_until_serving(name, time.monotonic() + SERVING_SECONDS)


def stored(stack: LocalStack, index_id: str) -> dict[str, str]:
    """Returns the text of every item of an index, by id; raises ItemCorrupt."""
    found: dict[str, str] = {}
    for number in range(SHARD_COUNT):
        store = ItemStore.open(stack.store_path(number), number, SHARD_COUNT, readonly=True)
        for each in store.scan_embeddings(index_id):
            if isinstance(each, ItemCorrupt):
                raise each
            found[each.item_id] = each.text
        store.close()
    return found


async def under_load(address: str, load: Load, item_count: int, work: Callable[[], None]) -> None:
    """Stores items, and does the work in a thread while clients search and write."""
    async with AsyncExitStack() as opened:
        clients = [
            await opened.enter_async_context(AsyncClient(address, timeout_seconds=30.0))
            for _ in range(CLIENT_COUNT + 1)
        ]
        await fill(clients[0], load, item_count)
        tasks = [asyncio.create_task(load.search(each)) for each in clients[1:]]
        tasks.append(asyncio.create_task(load.write(clients[0])))
        await asyncio.to_thread(work)
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                raise RuntimeError("a client ended") from ended


async def fill(client: AsyncClient, load: Load, count: int) -> None:
    """Stores items, and pictures for the cross-encoders to score."""
    records = list(scene_records("test", 3, 100))
    load.texts = short_texts(records)
    texts = {f"item-{number:06}": load.texts[number % len(load.texts)] for number in range(count)}
    pictures = [(record.record_id, record.image.read()) for record in records]
    async for outcome in client.ingest([*texts.items(), *pictures], index_id=ALIAS):
        if outcome.error is not None:
            raise outcome.error
    load.expected.update(texts | {item_id: "" for item_id, _ in pictures})


def export_two(folder: Path) -> None:
    """Exports the two models of `started`, which tell themselves by their match logits."""
    other = {"logit_shift": LOGIT_STEP, "word_noise": 1.0}
    for name, changes in zip(REPOSITORIES, ({}, other), strict=True):
        export_model(save_small(folder / "checkpoint", **changes), folder / name, Precision.FP32)


def started(opened: ExitStack, folder: Path, **settings: str) -> tuple[LocalStack, NextModels]:
    """Starts a Tandem and its second model, of the models in the folder; `opened` stops them."""
    serving, following_ports = Ports.free(SHARD_COUNT, replica_count=2), Ports.free(SHARD_COUNT)
    following = NextModels(folder / "data", folder / REPOSITORIES[1], following_ports)
    opened.enter_context(following)
    variables = dict(following.variables()) | settings
    stack = LocalStack(folder / "data", folder / REPOSITORIES[0], serving, settings=variables)
    opened.enter_context(stack)
    stack.start()
    following.start()
    return stack, following


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    load, waits = Load([]), random.Random(arguments.seed)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        export_two(folder)
        stack, following = started(opened, folder, ORCHESTRATOR_MAX_INFLIGHT_COUNT="64")
        operator, killer, ending = Operator(stack), Killer(stack, following), threading.Event()
        begin_time = time.monotonic()

        def work() -> None:
            operating = threading.Thread(target=operator.work, args=(ending,))
            operating.start()
            for number in range(arguments.kills):
                time.sleep(waits.uniform(0.0, arguments.pause))
                killer.kill(number)
                print(f"{number + 1} killed; {dict(load.counts)}", file=sys.stderr, flush=True)
            ending.set()
            operating.join()

        asyncio.run(under_load(stack.address, load, arguments.items, work))
        # By itself: nothing is started or repaired here.
        operator.run(0, "create", ALIAS, "--wait")
        last = [operator.settled()]
        steps = [("promote", ALIAS, "--ungated", "the end of a run"), ("rollback", ALIAS)]
        is_resumed = all(operator.run(0, *step) for step in steps)
        last.append(operator.settled())
        seconds = time.monotonic() - begin_time
        stack.stop()
        generations = [each["index_id"] for each in last[1]["generations"]]
        found = {index_id: stored(stack, index_id) for index_id in generations}
    return {
        "run": "generation kills",
        "kill_count": sum(killer.killed.values()),
        "killed": killer.killed,
        "seconds": round(seconds, 1),
        "commands": operator.counts,
        "refusals": operator.refusals,
        "clients": load.counts,
        "mixed_count": len(load.mixed),
        "mixed": load.mixed[:5],
        "is_resumed": is_resumed,
        "serving": [each["serving_id"] for each in last],
        "faults": {index_id: faults_of(load, items) for index_id, items in found.items()},
    }


def faults_of(load: Load, items: dict[str, str]) -> dict[str, Any]:
    """Returns what a generation lacks, has in another form, or has though it was removed."""
    sure = {key: text for key, text in load.expected.items() if key not in load.uncertain}
    lost = [key for key in sure if key not in items]
    stale = [key for key, text in sure.items() if key in items and items[key] != text]
    revived = sorted((load.removed - load.uncertain) & items.keys())
    return {
        "item_count": len(items),
        "uncertain_count": len(load.uncertain),
        **{
            name: {"count": len(found), "first": found[:5]}
            for name, found in (("lost", lost), ("stale", stale), ("revived", revived))
        },
    }


def main() -> None:
    """Prints one JSON line, and exits 1 where something was lost, mixed or stuck."""
    parser = argparse.ArgumentParser(description="generations under kill -9")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--items", type=int, default=1_000, help="texts before the writes")
    parser.add_argument("--pause", type=float, default=4.0, help="most seconds between two kills")
    parser.add_argument("--seed", type=int, default=0, help="of the pauses")
    # Otherwise what is started here would outlive a run that is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = run(parser.parse_args())
    print(json.dumps(result))
    wrong = result["mixed_count"] + (not result["is_resumed"])
    for each in result["faults"].values():
        wrong += sum(each[name]["count"] for name in ("lost", "stale", "revived"))
    print(f"{result['kill_count']} processes killed in {result['seconds']} s: {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
