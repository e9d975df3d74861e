"""A match planted at the end of a long text: the shipped model finds it by its best window."""

import pytest

from tandem.client import Client
from tandem.contract.content import TextUse, TruncationPolicy
from tandem.corpus.records import Record
from tandem.errors import TextTooLong

# Words that say nothing of any scene.
BEFORE = "this text goes on and on and says nothing of what can be seen here " * 30
FOUND_AMONG = 3


def caption(record: Record) -> str:
    """Returns the record's first English caption, often enough to fill most of a window."""
    first = next(each.text for each in record.captions if each.language == "en")
    return " ".join([first] * 12)


def found_count(
    client: Client, records: list[Record], before: str, policy: TruncationPolicy
) -> int:
    """Returns how many of the pictures their captions find, with `before` before them."""
    found = 0
    for record in records:
        result = client.search(
            before + caption(record),
            index_id="scenes",
            return_n=FOUND_AMONG,
            rerank_disabled=True,
            truncation_policy=policy,
        )
        found += record.record_id in [item.item_id for item in result.items]
    return found


def test_best_window_finds_what_truncation_misses(
    client: Client, records: list[Record], scenes_index: str
) -> None:
    """The captions alone are the control: what they do not find, no window can."""
    asked = records[::4]

    by_caption = found_count(client, asked, "", TruncationPolicy.TRUNCATE)
    by_window = found_count(client, asked, BEFORE, TruncationPolicy.BEST_WINDOW)
    by_beginning = found_count(client, asked, BEFORE, TruncationPolicy.TRUNCATE)

    assert by_caption >= 0.8 * len(asked)
    assert by_window >= 0.6 * by_caption
    assert by_beginning <= 0.3 * by_caption


@pytest.mark.parametrize("policy", list(TruncationPolicy))
def test_the_number_of_tokens_read_is_reported(
    client: Client, scenes_index: str, policy: TruncationPolicy
) -> None:
    """10,000 tokens, of which the shipped model reads 64 at a time: 62 and the special two."""
    text = "one " * 9_998

    if policy is TruncationPolicy.ERROR:
        with pytest.raises(TextTooLong):
            client.search(text, index_id=scenes_index)
        return
    result = client.search(text, index_id=scenes_index, truncation_policy=policy)

    windows = 32 if policy is TruncationPolicy.BEST_WINDOW else 1
    assert result.text_uses == (TextUse(10_000, 2 + windows * 62),)


def test_an_ingested_text_is_read_from_its_beginning(client: Client, scenes_index: str) -> None:
    """It is found by that, and each outcome says how much of the text it was."""
    items = [("long", "one red guitar " * 100), ("short", "two dogs")]

    outcomes = list(
        client.ingest(items, index_id="long-texts", truncation_policy=TruncationPolicy.TRUNCATE)
    )

    assert [outcome.error for outcome in outcomes] == [None, None]
    uses = [outcome.text_use for outcome in outcomes]
    assert [use is not None and use.is_truncated for use in uses] == [True, False]
    assert client.remove(["long", "short"], index_id="long-texts").removed_count == 2
