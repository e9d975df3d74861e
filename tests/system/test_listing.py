"""Pages of items with as many attributes as they can have, from real services."""

from tandem.client import Client, Item
from tandem.contract.filtering.attributes import (
    MAX_ATTRIBUTE_COUNT,
    MAX_TEXT_BYTES,
    MAX_TEXTS_COUNT,
)
from tandem.contract.limits import MAX_MESSAGE_BYTES
from tandem.stack.stack import LocalStack
from tests.support.local.tiny_stack import TINY_STACK

pytestmark = TINY_STACK


def test_a_page_is_as_large_as_a_message_may_be(tiny_stack: LocalStack) -> None:
    """4 MiB of attributes an item: the rest comes with the next page, in order and whole."""
    texts = [f"{number:02}".ljust(MAX_TEXT_BYTES, "x") for number in range(MAX_TEXTS_COUNT)]
    full = {f"a{number}": tuple(texts) for number in range(MAX_ATTRIBUTE_COUNT)}
    full_bytes = MAX_ATTRIBUTE_COUNT * MAX_TEXTS_COUNT * MAX_TEXT_BYTES
    count = MAX_MESSAGE_BYTES // full_bytes + 1
    items = [Item(f"{n:02}", text=f"{n} birds", attributes=full) for n in range(count)]
    with Client(tiny_stack.address, timeout_seconds=60) as client:
        for outcome in client.ingest(items, index_id="listed", batch_item_count=4):
            assert outcome.error is None

        found = list(client.list_items(index_id="listed", attributes_included=True))

        assert [each.item_id for each in found] == [item.item_id for item in items]
        assert all(each.attributes == full for each in found)
        client.remove_index(index_id="listed")
