"""Searches by words and by embeddings through real processes, with a small model."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tandem.client import (
    Client,
    DegradationKind,
    HybridFusion,
    Item,
    Modality,
    SearchResult,
    StoredItem,
)
from tandem.contract.search_path import KeywordState
from tandem.errors import ShardsMissing
from tandem.stack.stack import LocalStack
from tests.support.local.tiny_stack import TINY_STACK
from tests.support.pictures.pictures import encoded, noise

pytestmark = TINY_STACK

COUNT = 24
INDEX = "captioned"
TEXT = "two dogs left of one umbrella"
# One of its own for each item.
WORDS = [f"word{number:02}" for number in range(COUNT)]
PICTURES = [
    Item(
        f"picture-{number}",
        image=encoded(noise(number), "PNG"),
        attributes={"caption": f"a drawing of {word}"},
    )
    for number, word in enumerate(WORDS)
]
TEXTS = [Item(f"text-{number}", text=f"one cat {word}") for number, word in enumerate(WORDS)]


@pytest.fixture(scope="module", name="stack")
def _stack(tiny_stack: LocalStack) -> LocalStack:
    """Two shards that keep words, with pictures that have captions, and texts."""
    with Client(tiny_stack.address, timeout_seconds=60.0) as client:
        outcomes = client.ingest([*PICTURES, *TEXTS], index_id=INDEX)
        assert [each.error for each in outcomes] == [None] * 2 * COUNT
    return tiny_stack


@pytest.fixture(name="client")
def _client(stack: LocalStack) -> Iterator[Client]:
    with Client(stack.address, timeout_seconds=60.0) as client:
        yield client


def ids(result: SearchResult) -> list[str]:
    """Returns the items, best first."""
    return [item.item_id for item in result.items]


def search_count(stack: LocalStack) -> dict[str, float]:
    """Returns how many queries with words the shards have answered, by what became of them."""
    counts: dict[str, float] = {}
    for name in stack.service_names():
        if name.startswith("index"):
            with urllib.request.urlopen(stack.metrics_url(name), timeout=60) as response:
                text = response.read().decode()
            pattern = r'^tandem_index_keyword_searches_total{state="(\w+)"} (\S+)$'
            for state, value in re.findall(pattern, text, re.MULTILINE):
                counts[state] = counts.get(state, 0.0) + float(value)
    return counts


def states(client: Client) -> set[KeywordState | None]:
    """Returns whether the shards search by words; those that lack them degrade the answer."""
    try:
        found = client.search(TEXT, index_id=INDEX, keywords="drawing", retrieve_k=COUNT)
    except ShardsMissing:
        return set()
    found_states = {each.keyword_state for each in found.retrievals}
    if found.coverage.is_full and found_states != {KeywordState.SEARCHED}:
        assert {str(each) for each in found.degradations} & {
            DegradationKind.KEYWORDS_PARTIAL,
            DegradationKind.KEYWORDS_SKIPPED,
        }
    return found_states if found.coverage.is_full else set()


@pytest.mark.parametrize("fusion", HybridFusion)
def test_a_word_finds_the_picture_that_embeddings_rank_last(
    stack: LocalStack, client: Client, fusion: HybridFusion
) -> None:
    """The cross-encoder then judges it too; the same search without words does not have it."""
    whole = client.search(TEXT, index_id=INDEX, retrieve_k=COUNT, return_n=COUNT, rerank_k=1)
    last = min(whole.items, key=lambda item: item.similarity)
    word = WORDS[int(last.item_id.removeprefix("picture-"))]
    before = search_count(stack)

    plain = client.search(TEXT, index_id=INDEX, retrieve_k=5)
    between = search_count(stack)
    found = client.search(
        TEXT, index_id=INDEX, keywords=word, hybrid_fusion=fusion, keyword_weight=0.9, retrieve_k=5
    )

    assert last.item_id not in ids(plain)
    assert {each.hybrid for each in plain.items} == {None}
    [item] = [each for each in found.items if each.item_id == last.item_id]
    assert item.hybrid is not None
    assert (item.hybrid.similarity_rank, item.hybrid.keyword_rank) == (None, 1)
    assert item.similarity == pytest.approx(last.similarity, abs=1e-5)
    assert item.match_logit is not None
    assert not found.degradations
    assert {each.keyword_state for each in found.retrievals} == {KeywordState.SEARCHED}
    # Only the search with words asked the shards for them.
    assert between == before
    assert search_count(stack)["searched"] >= before["searched"] + 2


def test_a_picture_with_words_finds_texts(client: Client) -> None:
    """And a stored one; a text is found by its content."""
    for query in (encoded(noise(3), "PNG"), StoredItem("picture-3")):
        found = client.search(
            query,
            index_id=INDEX,
            target_modality=Modality.TEXT,
            keywords=f"{WORDS[7]} {WORDS[9]}",
            keyword_weight=1.0,
            retrieve_k=2,
        )

        assert set(ids(found)) == {"text-7", "text-9"}


def test_words_see_writes_at_once(client: Client) -> None:
    """A new caption, another one in its place, and none: on whichever shard the item is."""

    def named(word: str) -> list[str]:
        found = client.search(TEXT, index_id="written", keywords=word, retrieve_k=9)
        return [each.item_id for each in found.items if each.hybrid and each.hybrid.keyword_rank]

    for caption in ("zanzibar", "Málaga"):
        for number in range(4):
            item = Item(f"p{number}", image=encoded(noise(number), "PNG"))
            given = Item(item.item_id, image=item.image, attributes={"caption": caption})
            [outcome] = client.ingest([given], index_id="written")
            assert outcome.error is None
            assert f"p{number}" in named(caption)
    assert named("zanzibar") == []
    # Without case and accents.
    assert len(named("MALAGA")) == 4
    client.remove(["p1"], index_id="written")
    assert sorted(named("malaga")) == ["p0", "p2", "p3"]


def test_a_shard_reads_its_words_from_the_store_after_a_restart(
    stack: LocalStack, client: Client
) -> None:
    """Until then searches say which shard did not search by words; afterwards all are found."""
    stack.kill_service("index-0")
    stack.start_service("index-0")
    stack.wait_until_serving("index-0", time.monotonic() + 120)

    deadline_time = time.monotonic() + 120
    while states(client) != {KeywordState.SEARCHED}:
        assert time.monotonic() < deadline_time
        time.sleep(0.2)

    again = client.search(
        TEXT, index_id=INDEX, keywords="drawing", retrieve_k=COUNT, return_n=COUNT, rerank_k=1
    )
    assert {each.hybrid.keyword_rank for each in again.items if each.hybrid} == {
        *range(1, COUNT + 1)
    }
