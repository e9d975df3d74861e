"""What is wrong with a JSON message is said in the proto's names."""

import threading
from typing import Any

import pytest

from gateway_svc.json_message import by_size, message_from_json
from tandem.errors import RequestMalformed
from tandem.v1 import search_service_pb2


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            {"query": {"txt": "a cat"}},
            "Content has no field 'txt'; did you mean text? Its fields are text, image, regions",
        ),
        ({"queryParts": [{"x": 1}]}, "QueryPart has no field 'x'. Its fields are content, item_id"),
        ({"hybrid": {"fusionn": 1}}, "HybridSearch has no field 'fusionn'; did you mean fusion?"),
        ({"text": "a cat"}, "SearchItemsRequest has no field 'text'. Its fields are query, index_"),
        ({"x" * 500: 1}, f"SearchItemsRequest has no field '{'x' * 64}'. Its fields"),
        ({'a\n" at "': 1}, "SearchItemsRequest has no field 'a\\n'. Its fields"),
        ({"return_n": "many"}, "return_n is not a whole number"),
        ([], "the body is not a JSON object"),
    ],
)
async def test_a_fault_is_named(value: Any, why: str) -> None:
    with pytest.raises(RequestMalformed) as caught:
        await message_from_json(value, search_service_pb2.SearchItemsRequest)

    assert why in str(caught.value)


async def test_a_large_body_is_parsed_off_the_event_loop() -> None:
    """And a small one in it, which takes less than a thread does."""
    loop_thread = threading.get_ident()

    small = await by_size(10, threading.get_ident)
    large = await by_size(1_000_000, threading.get_ident)

    assert small == loop_thread
    assert large != loop_thread
