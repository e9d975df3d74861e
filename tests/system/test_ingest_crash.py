"""`kill -9` of an index shard while a stream is being ingested, again and again."""

import itertools
import os
import random
import threading
import time
import urllib.request

import pytest

from tandem.client import NO_RETRIES, Client, RetryPolicy
from tandem.contract.content import Modality
from tandem.errors import ServiceUnavailable, ShardsMissing, TandemError
from tandem.local.item_store.item_store import ItemStore
from tandem.stack.stack import LocalStack
from tests.support.faults.run_counts import run_count
from tests.support.local.tiny_stack import TINY_STACK

pytestmark = TINY_STACK

KILL_COUNT = run_count(quick=3, full=20)
LEAST_STORED_COUNT, MOST_STORED_COUNT = 40, 160
INDEX_ID = "crash"
WORDS = ("cat", "dog", "cow", "pig", "owl", "fox", "bee", "bus")


@pytest.fixture
def rng() -> random.Random:
    """A fresh seed each run, printed with the failure; TANDEM_CRASH_SEED repeats it."""
    seed = int(os.environ.get("TANDEM_CRASH_SEED", random.SystemRandom().randrange(2**32)))
    print(f"repeat with TANDEM_CRASH_SEED={seed}")
    return random.Random(seed)


@pytest.mark.timeout(400)
def test_acknowledged_items_survive_kills_of_a_shard(
    tiny_stack: LocalStack, rng: random.Random
) -> None:
    """Whatever the stream acknowledged is in a store and is found, after each kill.

    Three, and twenty by `make test-faults`.
    """
    acknowledged: set[str] = set()
    refused_count = 0
    for round_number in range(KILL_COUNT):
        victim = f"index-{rng.randrange(2)}"
        # By what was stored, not by the clock: on a busy machine little is stored in a second.
        reached = threading.Event()
        killer = threading.Thread(
            target=_kill_after, args=(tiny_stack, victim, reached, rng.uniform(0.0, 0.1))
        )
        killer.start()
        # The first kill may come before anything is acknowledged.
        stored_count = round_number and rng.randrange(LEAST_STORED_COUNT, MOST_STORED_COUNT)
        stored, refused = _ingest_until_refused(tiny_stack, round_number, reached, stored_count)
        killer.join()
        acknowledged |= stored
        refused_count += refused
        tiny_stack.start_service(victim)
        tiny_stack.wait_until_serving(victim, time.monotonic() + 120)
        _wait_until_reached(tiny_stack)

    print(f"{len(acknowledged):,} items acknowledged, {refused_count} refused")
    # Traffic enough to prove something, and kills that were felt.
    assert len(acknowledged) > 20 * KILL_COUNT
    assert refused_count > 0
    assert _missing_by_search(tiny_stack, acknowledged) == set()
    # Positive control: an item that was never sent is reported as missing by the same look.
    assert _missing_in_store(tiny_stack, acknowledged | {"never-sent"}) == {"never-sent"}


@pytest.mark.timeout(200)
def test_a_shard_that_is_away_has_few_items_encoded_twice(tiny_stack: LocalStack) -> None:
    """Those of the batches that were on their way when it was killed, however long it stays."""
    item_count, batch_count, away_seconds = 400, 8, 5.0
    items = [(f"away-{n}", f"{n} birds over {n % 7} boats") for n in range(item_count)]
    before, stored_count, restart = _encoded_count(tiny_stack), 0, None
    waits = RetryPolicy(max_backoff_seconds=0.1)
    with Client(tiny_stack.address, retries=waits) as client:
        for outcome in client.ingest(items, index_id=INDEX_ID, batch_item_count=batch_count):
            assert outcome.error is None
            stored_count += 1
            if restart is None and stored_count > item_count // 4:
                tiny_stack.kill_service("index-1")
                restart = threading.Timer(away_seconds, tiny_stack.start_service, ["index-1"])
                restart.start()
    assert restart is not None
    restart.join()
    tiny_stack.wait_until_serving("index-1", time.monotonic() + 120)

    encoded_count = _encoded_count(tiny_stack) - before
    # The orchestrator has four batches of a stream at once, and the killed one may not have said
    # what it stored.
    assert stored_count == item_count <= encoded_count <= item_count + 5 * batch_count


def _encoded_count(stack: LocalStack) -> int:
    """Returns the contents that the model embedded, without canaries."""
    with urllib.request.urlopen(stack.metrics_url("encoder"), timeout=30) as page:
        lines = page.read().decode().splitlines()
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in lines
        if line.startswith("tandem_triton_request_rows_sum{")
        and 'model="joint_encoder"' in line
        and 'purpose="canary"' not in line
    )


def _kill_after(
    stack: LocalStack, victim: str, reached: threading.Event, delay_seconds: float
) -> None:
    assert reached.wait(60)
    time.sleep(delay_seconds)
    stack.kill_service(victim)


def _ingest_until_refused(
    stack: LocalStack, round_number: int, reached: threading.Event, stored_count: int
) -> tuple[set[str], int]:
    """Ingests until an item is refused, which is when the kill was felt; then hangs up.

    Sets `reached` once so many are stored.

    Hangs up, because gRPC has sent thousands of such small batches ahead by then.
    """
    stored: set[str] = set()
    items = (
        (f"{round_number}-{n}", f"one {WORDS[n % 8]} left of two {WORDS[n // 8 % 8]}s")
        for n in itertools.count()
    )
    try:
        # Without retries: the client would wait for the shard that was killed.
        with Client(stack.address, retries=NO_RETRIES) as client:
            for outcome in client.ingest(items, index_id=INDEX_ID, batch_item_count=8):
                if outcome.error is not None:
                    print(f"round {round_number}: {len(stored)} stored, then {outcome.error!r}")
                    return stored, 1
                stored.add(outcome.item_id)
                if len(stored) >= stored_count:
                    reached.set()
    except TandemError as error:
        print(f"round {round_number}: {len(stored)} stored, then the stream ended by {error!r}")
    finally:
        reached.set()
    return stored, 1


def _wait_until_reached(stack: LocalStack) -> None:
    """Returns once writes and searches reach every shard again.

    Channels and breakers, one a kind of call, come back up to 1 s late. Else the next round would
    be refused before it sent anything, and no kill would be felt.
    """
    deadline = time.monotonic() + 60
    items = [(f"reached-{n}", "one cat") for n in range(16)]  # some for each shard
    with Client(stack.address, retries=NO_RETRIES) as client:
        while True:
            try:
                written = list(client.ingest(items, index_id=INDEX_ID))
                client.search(
                    "one cat",
                    index_id=INDEX_ID,
                    rerank_disabled=True,
                    full_coverage_required=True,
                )
            except (ServiceUnavailable, ShardsMissing):
                written = []
            if written and all(outcome.error is None for outcome in written):
                return
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _missing_by_search(stack: LocalStack, item_ids: set[str]) -> set[str]:
    """Returns those that no search finds: many texts are alike, so each query takes 1,000."""
    found: set[str] = set()
    with Client(stack.address, timeout_seconds=30.0) as client:
        for number in range(64):
            words = f"one {WORDS[number % 8]} left of two {WORDS[number // 8]}s"
            result = client.search(
                words,
                index_id=INDEX_ID,
                target_modality=Modality.TEXT,
                retrieve_k=1_000,
                return_n=1_000,
            )
            found |= {item.item_id for item in result.items}
    return item_ids - found


def _missing_in_store(stack: LocalStack, item_ids: set[str]) -> set[str]:
    """Stops each shard, opens its store, and starts the shard again."""
    missing = set(item_ids)
    for shard in range(2):
        stack.stop_service(f"index-{shard}")
        store = ItemStore.open(stack.store_path(shard), shard, 2)
        wanted = sorted(missing)
        for start in range(0, len(wanted), 200):
            chunk = wanted[start : start + 200]
            read = store.read_items(INDEX_ID, chunk)
            missing -= {item_id for item_id, item in zip(chunk, read, strict=True) if item}
        store.close()
        stack.start_service(f"index-{shard}")
    for shard in range(2):
        stack.wait_until_serving(f"index-{shard}", time.monotonic() + 120)
    _wait_until_reached(stack)
    return missing
