"""gateway_svc.json_message: JSON is read as protobuf's mapping says, and what is wrong is named."""

import base64
import json
import threading
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from gateway_svc.json_message import by_size, message_from_json, message_to_json
from tandem.errors import RequestMalformed
from tandem.v1 import attribute_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.grid import sampled

BYTES = bytes(range(248, 256))
URL_SAFE = base64.urlsafe_b64encode(BYTES).decode()


@pytest.mark.parametrize(
    ("value", "why"),
    sampled([
        ([], "SearchItemsRequest is not a JSON object"),
        ({"query": {"txt": "a cat"}}, '"txt" at "SearchItemsRequest.query"'),
        ({"queryParts": [{"x": 1}]}, '"x" at "SearchItemsRequest.queryParts[0]"'),
        ({"x" * 5_000: 1}, "SearchItemsRequest"),
        ({"query": ""}, "query is not a JSON object"),
        ({"queryParts": {}}, "repeated field queryParts must be in []"),
        ({"query_parts": [{}, {"content": 1}]}, "query_parts[1].content is not a JSON object"),
        ({"filter": {"all_of": {"filters": [3]}}}, "filter.all_of.filters[0] is not a JSON object"),
        ({"index_id": "a", "indexId": "b"}, "indexId and index_id are one field"),
        ({"query": {"image": "AAAA", "text": "a"}}, "multiple"),
        ({"index_id": 5}, "index_id"),
        ({"query": {"image": "a!b#"}}, "query.image is not base64"),
        ({"query": {"image": "AA==AAAA"}}, "query.image is not base64"),
        ({"query": {"image": "AAAAA"}}, "query.image is not base64"),
        ({"query": {"image": "A" * 300_000 + "?" + "A" * 3}}, "query.image is not base64"),
        ({"return_n": True}, "return_n is neither a text nor a number"),
        ({"return_n": 1.5}, "return_n"),
        ({"min_probability": 10**400}, "too large"),
        ({"target_modality": "image"}, "Invalid enum value image"),
    ], fault=lambda row: row[1].split(" is ")[-1]),
    ids=str,
)  # fmt: skip
async def test_an_odd_value_is_refused_by_its_field(value: Any, why: str) -> None:
    """`json_format` alone would read several of them as something else."""
    with pytest.raises(RequestMalformed) as caught:
        await message_from_json(value, pb.SearchItemsRequest)

    assert why in str(caught.value)
    assert len(str(caught.value)) < 1_200


async def test_the_values_of_a_map_are_checked_by_their_names() -> None:
    request = {"items": [{"item_id": "a", "attributes": {"style": "noto"}}]}

    with pytest.raises(RequestMalformed, match=r"items\[0\].attributes\['style'\] is not a JSON"):
        await message_from_json(request, pb.IngestItemsRequest)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"return_n": "5"}, pb.SearchItemsRequest(return_n=5)),
        ({"min_probability": "-Infinity"}, pb.SearchItemsRequest(min_probability=float("-inf"))),
        ({"explained": False, "index_id": None}, pb.SearchItemsRequest()),
        ({"cursor": URL_SAFE}, pb.SearchItemsRequest(cursor=BYTES)),
    ],
    ids=str,
)  # fmt: skip
async def test_what_protobuf_has_in_json_is_read(
    value: Any, message: pb.SearchItemsRequest
) -> None:
    assert await message_from_json(value, pb.SearchItemsRequest) == message


async def test_a_duration_is_a_text() -> None:
    answer = {"durations": {"total_duration": "0.5s"}}

    message = await message_from_json(answer, pb.SearchItemsResponse)

    assert message.durations.total_duration == Duration(nanos=500_000_000)


def test_an_answer_is_written_in_both_forms() -> None:
    item = pb.RankedItem(item_id='a"é\n😀', similarity=0.1, match_logit=-0.0, retrieve_rank=3)
    for name, value in {
        "style": attribute_pb2.AttributeValue(integer=2**60),
        "size": attribute_pb2.AttributeValue(integer=2),
        "attributes": attribute_pb2.AttributeValue(text="a"),
        "none": attribute_pb2.AttributeValue(),
    }.items():
        item.attributes[name].CopyFrom(value)
    answer = pb.SearchItemsResponse(items=[item], next_cursor=b"\0\xff")
    answer.durations.total_duration.CopyFrom(Duration(seconds=1, nanos=500_000_000))

    canonical = json.loads(message_to_json(answer))
    rest = json.loads(message_to_json(answer, is_canonical=False))

    typed = {"style": {"integer": str(2**60)}, "none": {}}
    assert canonical == {
        "items": [
            {
                "itemId": 'a"é\n😀',
                "similarity": 0.1,
                "matchLogit": 0.0,
                "retrieveRank": 3,
                "attributes": {**typed, "size": {"integer": "2"}, "attributes": {"text": "a"}},
            }
        ],
        "nextCursor": "AP8=",
        "durations": {"totalDuration": "1.500s"},
    }
    assert rest["items"][0]["final_rank"] == 0
    assert rest["items"][0]["attributes"] == {**typed, "size": 2, "attributes": "a"}
    assert "match_probability" not in rest["items"][0]
    assert rest["degradations"] == []


async def test_a_large_body_is_parsed_off_the_event_loop() -> None:
    loop_thread = threading.get_ident()

    small = await by_size(10, threading.get_ident)
    large = await by_size(1_000_000, threading.get_ident)

    assert small == loop_thread
    assert large != loop_thread
