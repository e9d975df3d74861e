"""capacity.message_scanner: what a request has in it is known before anything is made."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tandem.chassis.capacity.message_scanner import MessageScanner
from tandem.contract.identifiers import MAX_ITEM_ID_BYTES
from tandem.contract.limits import MAX_ITEM_ID_COUNT
from tandem.contract.methods import PROBE_LIMIT, RequestLimit, request_limit
from tandem.errors import BatchSizeOutOfRange, MessageTooLarge, RequestMalformed, TandemError
from tandem.v1 import attribute_pb2, index_admin_service_pb2, search_cursor_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.chassis.contract import contract_methods

METHODS = contract_methods()
SEARCH = "/tandem.v1.SearchService/SearchItems"
BATCH = "/tandem.v1.SearchService/BatchSearchItems"
INGEST = "/tandem.v1.SearchService/IngestItems"


def scanner(path: str) -> MessageScanner:
    return MessageScanner(path.rpartition("/")[2], METHODS[path].input_type, request_limit(path))


def scanner_of(message: type[Message], limit: RequestLimit) -> MessageScanner:
    return MessageScanner("Method", message.DESCRIPTOR, limit)  # type: ignore[arg-type]


def fields_of(path: str) -> Mapping[str, FieldDescriptor]:
    return METHODS[path].input_type.fields_by_name


def varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def within(key: int, inside: bytes) -> bytes:
    """Returns a field with a message in it."""
    return bytes([key]) + varint(len(inside)) + inside


def test_every_method_has_its_limit() -> None:
    for path in METHODS:
        scanner(path)  # raises where a counted field has another name


# Each repeats what costs two bytes or little more, and nothing of it may be made.
HOSTILE = {
    "empty messages": (BATCH, b"\x0a\x00" * 1_000_000),
    "empty parts": (SEARCH, b"\x62\x00" * 1_000_000),
    "empty strings": (SEARCH, b"\x52\x00" * 1_000_000),
    "empty values of a condition": (SEARCH, within(0x4A, within(0x2A, b"\x12\x00" * 1_000_000))),
    "empty filters in a list": (SEARCH, within(0x4A, within(0x0A, b"\x0a\x00" * 1_000_000))),
    "entries of a map": (INGEST, within(0x12, b"\x1a\x00" * 1_000_000)),
    "a number again and again": (SEARCH, b"\x20\x01" * 1_000_000),
    "a key in more bytes than it needs": (BATCH, b"\x8a\x80\x00\x00" * 1_000_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_oversized_field_is_refused_by_name(name: str) -> None:
    path, data = HOSTILE[name]

    with pytest.raises((MessageTooLarge, BatchSizeOutOfRange)) as caught:
        scanner(path).check(data)

    limit = request_limit(path)
    shown = {f"{limit.max_field_count:,}", *(f"1 to {most}" for most in limit.max_counts.values())}
    assert any(each in caught.value.message for each in shown), caught.value.message


def test_packed_lists_are_counted_by_their_elements() -> None:
    limit = RequestLimit(1 << 20, 100)
    numbers = scanner_of(search_cursor_pb2.SearchCursor, limit)
    fields = search_cursor_pb2.SearchCursor.DESCRIPTOR.fields
    packed = [each for each in fields if each.is_repeated and each.is_packed]
    assert packed, "take another message for this test"
    for each in packed:
        key = varint(each.number << 3 | 2)
        numbers.check(key + varint(90) + bytes(90))
        with pytest.raises(MessageTooLarge):
            numbers.check(key + varint(800) + bytes(800))


def test_a_list_error_names_its_length() -> None:
    with pytest.raises(BatchSizeOutOfRange, match="searches has 65 elements; send 1 to 64"):
        scanner(BATCH).check(b"\x0a\x00" * 65)
    with pytest.raises(BatchSizeOutOfRange, match="items has over 1,065 elements; send 1 to 64"):
        scanner(INGEST).check(b"\x12\x00" * 1_000_000)
    scanner(BATCH).check(b"\x0a\x00" * 64)


def test_bytes_are_bounded_by_method() -> None:
    scanner(SEARCH).check(
        pb.SearchItemsRequest(query={"image": bytes(8 << 20)}).SerializeToString()
    )
    described = index_admin_service_pb2.DescribeIndexesRequest(index_id="x" * 100_000)
    with pytest.raises(MessageTooLarge, match="DescribeIndexes allows 65,536 bytes"):
        scanner("/tandem.v1.IndexAdminService/DescribeIndexes").check(described.SerializeToString())


def test_every_method_that_takes_ids_takes_as_many_of_the_longest() -> None:
    taken = {"item_ids": "x" * MAX_ITEM_ID_BYTES, "index_ids": "x" * 63}
    asked = [(path, name) for path in METHODS for name in taken if name in fields_of(path)]

    assert len(asked) >= 5
    for path, name in asked:
        described = fields_of(path)[name]
        one = varint(described.number << 3 | 2) + varint(len(taken[name])) + taken[name].encode()
        scanner(path).check(one * MAX_ITEM_ID_COUNT)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x20" + b"\x80" * 1_000_000,
        b"\x00\x00",
        b"\x0b\x0c",
        b"\x0d\x00",
        within(0x0A, b"\x0a\x05abc") + b"zzzzz",
    ],
)
def test_what_is_not_a_message_is_refused(data: bytes) -> None:
    with pytest.raises(RequestMalformed):
        scanner(SEARCH).check(data)


def test_messages_within_messages_end_somewhere() -> None:
    """At protobuf's own limit; 10,000 deep it takes no stack of ours."""
    nested = b""
    for _ in range(10_000):
        nested = within(0x1A, nested)
    with pytest.raises(RequestMalformed, match="nested"):
        scanner(SEARCH).check(within(0x4A, nested))


def test_it_agrees_with_protobuf() -> None:
    chance = random.Random(5)
    whole = pb.SearchItemsRequest(
        query={"text": "two dogs"},
        index_id="scenes",
        retrieve_k=100,
        filter={"one_of": {"name": "style", "values": [{"text": "noto"}, {"integer": -7}]}},
        query_parts=[{"item_id": "a", "weight": 0.5}],
    ).SerializeToString()
    parsed = refused = 0
    search, message_class = scanner(SEARCH), GetMessageClass(METHODS[SEARCH].input_type)
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        try:
            search.check(bytes(data))
        except TandemError as error:
            # Groups are the one thing that protobuf takes and the contract has none of.
            if "groups" not in error.message:
                refused += 1
                with pytest.raises(DecodeError):
                    message_class.FromString(bytes(data))
            continue
        with suppress(DecodeError):  # of a text that is not UTF-8, which the scanner leaves to it
            message_class.FromString(bytes(data))
            parsed += 1
    assert parsed > 200
    assert refused > 200


def test_a_method_of_no_contract_is_looked_at_from_outside() -> None:
    unknown = MessageScanner("Method", None, PROBE_LIMIT)
    unknown.check(within(0x0A, b"\xff" * 50))
    with pytest.raises(MessageTooLarge):
        unknown.check(b"\x0a\x00" * 101)


def test_messages_of_few_and_many_fields_are_distinguished() -> None:
    """However long it is; what is wrong with a small one is raised at once."""
    search = scanner(SEARCH)
    assert search.check_small(
        pb.SearchItemsRequest(query={"image": bytes(1 << 20)}).SerializeToString()
    )
    values = [attribute_pb2.AttributeValue(integer=number) for number in range(900)]
    many = pb.SearchItemsRequest(filter={"one_of": {"name": "a", "values": values}})
    assert not search.check_small(many.SerializeToString())
    search.check(many.SerializeToString())
    with pytest.raises(RequestMalformed):
        search.check_small(many.SerializeToString()[:100])
    # Too many in all, of which the whole walk tells.
    assert not search.check_small(b"\x62\x00" * 1_000_000)
    with pytest.raises(MessageTooLarge):
        scanner_of(pb.SearchItemsRequest, PROBE_LIMIT).check_small(b"\x62\x00" * 1_000)
