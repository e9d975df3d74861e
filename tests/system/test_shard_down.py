"""Whichever of two shards is lost, the other's items are found and the answer says so.

And of a shard whose index answers, the cross-encoder alone may be lost.
"""

import os
import signal
import time

import pytest

from tandem.client import Client, SearchResult
from tandem.contract.content import Modality
from tandem.contract.search.answer_names import RerankStopReason
from tandem.errors import ShardsMissing
from tandem.search.shard_map import ShardMap
from tandem.stack.stack import LocalStack
from tests.support.local.tiny_stack import TINY_STACK
from tests.support.pictures.pictures import encoded, noise

pytestmark = TINY_STACK

INDEX_ID = "uneven"
COUNT_OF_SHARD = {0: 47, 1: 53}


def search(client: Client, *, full_coverage_required: bool = False) -> SearchResult:
    """Finds every item that there is."""
    return client.search(
        "one cat",
        index_id=INDEX_ID,
        target_modality=Modality.TEXT,
        return_n=100,
        full_coverage_required=full_coverage_required,
    )


def start_again(stack: LocalStack, client: Client, *shards: int) -> None:
    """Returns when searches see every shard."""
    for shard in shards:
        stack.start_service(f"index-{shard}")
        stack.wait_until_serving(f"index-{shard}", time.monotonic() + 120)
    while True:
        try:
            search(client, full_coverage_required=True)
            return
        except ShardsMissing:  # its channel is not connected again, or its breaker still open
            time.sleep(0.1)


@pytest.mark.timeout(300)
def test_losing_either_shard_leaves_the_other_ones_items(tiny_stack: LocalStack) -> None:
    """By default, be it the larger or the smaller one; only without both is there no answer."""
    ids = ShardMap(2).group(INDEX_ID, (f"item-{number}" for number in range(200)))
    kept = {shard: set(ids[shard][:count]) for shard, count in COUNT_OF_SHARD.items()}
    with Client(tiny_stack.address, timeout_seconds=60.0) as client:
        items = [(each, f"one cat at {each}") for each in kept[0] | kept[1]]
        assert not any(outcome.error for outcome in client.ingest(items, index_id=INDEX_ID))
        whole = search(client)
        assert (len(whole.items), whole.degradations) == (100, ())

        for lost, left in ((1, 0), (0, 1)):
            tiny_stack.stop_service(f"index-{lost}")

            for _ in range(3):
                answer = search(client)
                assert {item.item_id for item in answer.items} == kept[left]
                assert "SHARDS_MISSING" in answer.degradations
                assert answer.coverage.covered_item_count == COUNT_OF_SHARD[left]
                assert answer.coverage.missing_shards == {lost: "SERVICE_UNAVAILABLE"}
            with pytest.raises(ShardsMissing, match="ask without full_coverage_required"):
                search(client, full_coverage_required=True)
            if left == 0:
                start_again(tiny_stack, client, lost)

        tiny_stack.stop_service("index-1")
        with pytest.raises(ShardsMissing, match=r"0 of 2 shards.*start the missing ones"):
            search(client)
        start_again(tiny_stack, client, 0, 1)


# At most 2 s of the 10 that a search has; and what a busy machine adds.
HANG_SECONDS = 2.0 + 3.0


@pytest.mark.timeout(300)
def test_a_cross_encoder_that_hangs_costs_a_search_its_share_of_the_time(
    tiny_stack: LocalStack,
) -> None:
    """Its process is asked whether it lives; without, it would take all the time that there is, or
    until its connection is dropped, which is not TIME but UNAVAILABLE.
    """
    pids = {endpoint.name: endpoint.pid for endpoint in tiny_stack.endpoints()}
    pictures = [(f"picture-{number}", encoded(noise(number), "PNG")) for number in range(20)]

    def found(client: Client) -> SearchResult:
        return client.search(f"one cat at {time.monotonic()}", index_id="hung")

    with Client(tiny_stack.address, timeout_seconds=10.0) as client:
        assert not any(outcome.error for outcome in client.ingest(pictures, index_id="hung"))
        assert found(client).degradations == ()
        for shard in range(2):
            os.kill(pids[f"rerank-{shard}"], signal.SIGSTOP)
            try:
                start_time = time.monotonic()
                first = found(client)
                first_seconds = time.monotonic() - start_time
            finally:
                os.kill(pids[f"rerank-{shard}"], signal.SIGCONT)

            assert first_seconds < HANG_SECONDS
            assert len(first.items) == 10
            assert first.coverage.is_full
            assert first.rerank.stop is RerankStopReason.TIME
            assert first.rerank.reranked_depth < 20
            while found(client).degradations:  # its breaker or its connection
                time.sleep(0.1)
