"""gateway_svc.plain_value: JSON's values are read as protobuf's mapping says, and no further."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gateway_svc.json_message import message_from_json
from tandem.errors import RequestMalformed
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.content_pb2 import MODALITY_IMAGE

BYTES = bytes(range(248, 256))
STANDARD = base64.b64encode(BYTES).decode()
URL_SAFE = base64.urlsafe_b64encode(BYTES).decode()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"index_id": 5}, "index_id is not a text"),
        ({"index_id": ["a"]}, "index_id is not a text"),
        ({"index_id": "\ud800"}, "index_id has a lone surrogate"),
        ({"query": {"image": 5}}, "query.image is not base64 text"),
        ({"query": {"image": "a!b#"}}, "query.image is not base64"),
        ({"query": {"image": "AA AA\n"}}, "query.image is not base64"),
        ({"query": {"image": "AA==AAAA"}}, "query.image is not base64"),
        ({"query": {"image": "AAAAA"}}, "query.image is not base64"),
        ({"query": {"image": "ÄÄÄÄ"}}, "query.image is not base64"),
        ({"query": {"image": "A" * 300_000 + "?" + "A" * 3}}, "query.image is not base64"),
        ({"explained": 1}, "explained is neither true nor false"),
        ({"explained": "true"}, "explained is neither true nor false"),
        ({"return_n": True}, "return_n is not a whole number"),
        ({"return_n": 1.5}, "return_n is not a whole number"),
        ({"return_n": "1_0"}, "return_n is not a whole number"),
        ({"return_n": "٥"}, "return_n is not a whole number"),
        ({"return_n": {}}, "return_n is not a whole number"),
        ({"return_n": 2**31}, "out of range"),
        ({"return_n": "1.5"}, "non-integer"),
        ({"min_probability": True}, "min_probability is not a number"),
        ({"min_probability": "1_0"}, "min_probability is not a number"),
        ({"min_probability": " 1"}, "min_probability is not a number"),
        ({"min_probability": "inf"}, "min_probability is not a number"),
        ({"min_probability": []}, "min_probability is not a number"),
        ({"min_probability": 10**400}, "min_probability is too large"),
        ({"min_probability": 1e39}, "too large"),
        ({"target_modality": True}, "target_modality is not the name of a value"),
        ({"target_modality": 1.5}, "target_modality is not the name of a value"),
        ({"target_modality": []}, "target_modality is not the name of a value"),
    ],
    ids=str,
)  # fmt: skip
async def test_an_odd_value_is_refused_by_its_field(value: Any, why: str) -> None:
    """`json_format` alone would read several of them as something else."""
    with pytest.raises(RequestMalformed, match=why):
        await message_from_json(value, pb.SearchItemsRequest)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"return_n": "5"}, pb.SearchItemsRequest(return_n=5)),
        ({"return_n": 5.0}, pb.SearchItemsRequest(return_n=5)),
        ({"return_n": "5e1"}, pb.SearchItemsRequest(return_n=50)),
        ({"return_n": -5}, pb.SearchItemsRequest(return_n=-5)),
        ({"min_probability": "0.5"}, pb.SearchItemsRequest(min_probability=0.5)),
        ({"min_probability": 1}, pb.SearchItemsRequest(min_probability=1)),
        ({"min_probability": "-Infinity"}, pb.SearchItemsRequest(min_probability=float("-inf"))),
        ({"target_modality": 2}, pb.SearchItemsRequest(target_modality=MODALITY_IMAGE)),
        ({"explained": False, "index_id": None}, pb.SearchItemsRequest()),
        ({"cursor": STANDARD}, pb.SearchItemsRequest(cursor=BYTES)),
        ({"cursor": URL_SAFE}, pb.SearchItemsRequest(cursor=BYTES)),
        ({"cursor": URL_SAFE.rstrip("=")}, pb.SearchItemsRequest(cursor=BYTES)),
        ({"cursor": ""}, pb.SearchItemsRequest()),
        ({"cursor": "A" * 400_000}, pb.SearchItemsRequest(cursor=bytes(300_000))),
    ],
    ids=str,
)  # fmt: skip
async def test_what_protobuf_has_in_json_is_read(
    value: Any, message: pb.SearchItemsRequest
) -> None:
    """Numbers in texts too, as large ones are written, and both alphabets of base64."""
    assert await message_from_json(value, pb.SearchItemsRequest) == message
