"""gateway_svc.message_shape: objects, lists and values are where a message has them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway_svc.message_shape import misshapen
from tandem.v1 import search_service_pb2 as pb


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"query": {"text": "a"}, "returnN": 3, "unknown": []},
        {"queryParts": [{"content": {"text": "a"}}], "hybrid": None, "query": None},
        {"filter": {"all_of": {"filters": [{"exists": "a"}]}}},
        {"query": {"text": "a", "image": None}},
    ],
)
def test_a_fitting_value_passes(value: Any) -> None:
    """Also unknown fields, of which json_format itself says what is wrong."""
    assert misshapen(value, pb.SearchItemsRequest()) == ""


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("query", "the body is not a JSON object"),
        ({"query": "a"}, "query is not a JSON object"),
        ({"query": []}, "query is not a JSON object"),
        ({"queryParts": {}}, "queryParts is not a list"),
        ({"consistency_tokens": "abc"}, "consistency_tokens is not a list"),
        ({"query_parts": [{}, {"content": 1}]}, "query_parts[1].content is not a JSON object"),
        ({"filter": {"all_of": {"filters": [3]}}}, "filter.all_of.filters[0] is not a JSON object"),
        ({"query_parts": [{}, None]}, "query_parts[1] is null"),
        ({"consistency_tokens": ["a", 1]}, "consistency_tokens[1] is not a text"),
        (
            {"query_parts": [{"content": {"image": "?"}}]},
            "query_parts[0].content.image is not base",
        ),
    ],
)
def test_a_misshapen_value_is_named_by_its_place(value: Any, why: str) -> None:
    assert misshapen(value, pb.SearchItemsRequest()).startswith(why)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"index_id": "a", "indexId": "b"}, "indexId and index_id are one field"),
        ({"indexId": None, "index_id": "b"}, "index_id and indexId are one field"),
        ({"query_parts": [{"itemId": "a", "item_id": "a"}]}, "query_parts[0].item_id and itemId"),
        ({"query": {"image": "AAAA", "text": "a"}}, "query has both image and text"),
    ],
)
def test_a_field_is_given_once(value: Any, why: str) -> None:
    """Under one of its names, and one of those that exclude each other: the last would count."""
    assert misshapen(value, pb.SearchItemsRequest()).startswith(why)


def test_attributes_are_checked_by_name() -> None:
    """A map's values are messages too."""
    request = {"items": [{"item_id": "a", "attributes": {"style": "noto"}}]}

    found = misshapen(request, pb.IngestItemsRequest())

    assert found == "items[0].attributes['style'] is not a JSON object"


def test_a_null_attribute_is_named() -> None:
    request = {"items": [{"item_id": "a", "attributes": {"style": None}}]}

    assert misshapen(request, pb.IngestItemsRequest()) == "items[0].attributes['style'] is null"


def test_a_duration_is_a_text() -> None:
    """Messages of protobuf's own have a JSON of their own."""
    answer = {"durations": {"total_duration": "0.5s"}}

    assert misshapen(answer, pb.SearchItemsResponse()) == ""
