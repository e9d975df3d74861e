"""Tests the conversion of attributes and filters in IndexService's messages."""

import pytest

from tandem.contract.filtering.attribute_wire import attributes_to_proto, filter_to_proto
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.filtering.filters import Exists, OneOf
from tandem.errors import AttributeInvalid, FilterInvalid
from tandem.stages.items import FetchedItem, FetchedItems, ItemsQuery
from tandem.wire.items import items_from_proto, items_to_proto, upsert_from_proto
from tandem.wire.retrieval import query_from_proto
from tests.support.index_svc.encoded_items import search_request, upsert_request
from tests.support.item_store.made_items import text_item


def test_an_items_attributes_are_converted_both_ways() -> None:
    """They have every type; an item may have none."""
    attributes: Attributes = {
        "style": "noto",
        "count": 3,
        "weight": 3.0,
        "hidden": False,
        "tags": ("a", "b"),
    }
    request = upsert_request([text_item("a"), text_item("b")])
    for name, message in attributes_to_proto(attributes).items():
        request.items[0].attributes[name].CopyFrom(message)

    items = upsert_from_proto(request).items

    assert [item.attributes for item in items] == [attributes, {}]
    fetched = {each.item_id: FetchedItem(each.content, each.attributes) for each in items}
    query = ItemsQuery("scenes", list(fetched))
    sent = items_to_proto(FetchedItems(fetched, 2))
    assert items_from_proto(sent, query, "index-0").items == fetched


def test_a_bad_attribute_refuses_the_batch() -> None:
    """The orchestrator refuses such items one by one before."""
    request = upsert_request([text_item("a")])
    request.items[0].attributes["a b"].flag = True

    with pytest.raises(AttributeInvalid):
        upsert_from_proto(request)


def test_a_search_has_its_filter_or_none() -> None:
    """No filter differs from an empty one, which is invalid."""
    request = search_request([1])
    where = OneOf("style", ("noto",)) & ~Exists("hidden")

    assert query_from_proto(request).where is None
    request.filter.CopyFrom(filter_to_proto(where))
    assert query_from_proto(request).where == where
    request.filter.Clear()
    with pytest.raises(FilterInvalid):
        query_from_proto(request)
