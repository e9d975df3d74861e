"""gateway_svc.message_writer, held to protobuf's own `json_format`."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from typing import Any, cast

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message

from gateway_svc.message_writer import _shortest, write_json
from gateway_svc.methods import METHODS, Method
from tandem.v1 import attribute_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.fuzz.wire_maker import WireMaker

COUNT = 40


def by_reference(message: Message, *, is_canonical: bool) -> Any:
    """Returns the value of protobuf's JSON; a text that says so if it has none."""
    try:
        text = json_format.MessageToJson(
            message,
            preserving_proto_field_name=not is_canonical,
            always_print_fields_with_no_presence=not is_canonical,
        )
    except json_format.SerializeToJsonError:  # a duration of 300 million years
        return "no JSON"
    value = json.loads(text)
    return value if is_canonical else plain(value)


def plain(value: Any, name: str = "") -> Any:
    """Returns protobuf's JSON with the values of attributes as /v1 has them."""
    if isinstance(value, list):
        return [plain(each, name) for each in value]
    if not isinstance(value, dict):
        return value
    if name in ("value", "values", "attribute") and len(value) == 1:
        [(kind, each)] = value.items()
        if kind == "texts":
            return each["values"]
        if kind not in ("integer", "real"):
            return each
        number = int(each) if kind == "integer" else float(each)
        return number if abs(number) < 2**53 else value
    inner = "attribute" if name == "attributes" else ""
    return {key: plain(each, inner or key) for key, each in value.items()}


def by_writer(message: Message, *, is_canonical: bool) -> Any:
    """Returns the value of our JSON, likewise."""
    try:
        text = write_json(message, is_canonical=is_canonical)
    except ValueError:
        return "no JSON"
    return json.loads(text)


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_made_messages_are_written_as_protobuf_writes_them(method: Method) -> None:
    """Every answer and request of the contract, with odd values and unknown fields."""
    maker = WireMaker(7, ["scenes"])
    seen: Counter[str] = Counter()
    for kind in (method.answer_class, method.request_class):
        for _ in range(COUNT):
            try:
                message = kind.FromString(maker.message(cast(Descriptor, kind.DESCRIPTOR)))
            except DecodeError:
                continue
            for is_canonical in (True, False):
                expected = by_reference(message, is_canonical=is_canonical)
                assert by_writer(message, is_canonical=is_canonical) == expected, message
                seen["none" if expected == "no JSON" else "some" if expected else "empty"] += 1

    assert seen["some"] + seen["empty"] > COUNT / 2


def test_a_search_is_written_as_protobuf_writes_it() -> None:
    """By hand: a map, an enum, durations, and fields that are absent in one form alone."""
    item = pb.RankedItem(item_id='a"é\n😀', similarity=0.1, match_logit=-0.0, retrieve_rank=3)
    item.attributes["style"].CopyFrom(attribute_pb2.AttributeValue(integer=2**60))
    item.attributes["size"].CopyFrom(attribute_pb2.AttributeValue(integer=2))
    answer = pb.SearchItemsResponse(items=[item], next_cursor=b"\0\xff")
    answer.durations.total_duration.CopyFrom(Duration(seconds=1, nanos=500_000_000))

    canonical = json.loads(write_json(answer, is_canonical=True))
    rest = json.loads(write_json(answer, is_canonical=False))

    assert canonical == {
        "items": [
            {
                "itemId": 'a"é\n😀',
                "similarity": 0.1,
                "matchLogit": 0.0,
                "retrieveRank": 3,
                "attributes": {"style": {"integer": str(2**60)}, "size": {"integer": "2"}},
            }
        ],
        "nextCursor": "AP8=",
        "durations": {"totalDuration": "1.500s"},
    }
    assert rest["items"][0]["final_rank"] == 0
    assert rest["items"][0]["attributes"] == {"style": {"integer": str(2**60)}, "size": 2}
    assert "match_probability" not in rest["items"][0]
    assert rest["degradations"] == []
    assert rest == by_reference(answer, is_canonical=False)


def test_numbers_of_four_bytes_have_the_digits_that_they_need() -> None:
    """As protobuf finds them, one digit after the other."""
    chance = random.Random(3)
    bits = [chance.getrandbits(32) for _ in range(5_000)]
    values = [struct.unpack("<f", struct.pack("<I", each))[0] for each in bits]
    finite = [each for each in values if each - each == 0]

    assert len(finite) > 4_000
    assert [_shortest(each) for each in finite] == [digit_by_digit(each) for each in finite]


def digit_by_digit(value: float) -> str:
    """Returns the first of 6, 7, 8 and 9 digits that are the number in four bytes."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next(
        each for each in texts if struct.pack("<f", float(each)) == struct.pack("<f", value)
    )
