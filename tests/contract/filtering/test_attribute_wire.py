"""Attributes and filters come back from the wire, and what is wrong there is refused by name."""

import unicodedata
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.contract.filtering.attribute_wire import (
    attributes_from_proto,
    attributes_to_proto,
    checked_filter,
    filter_from_proto,
    filter_to_proto,
)
from tandem.contract.filtering.attributes import Attributes, AttributeValue, check_attributes
from tandem.contract.filtering.filters import (
    MAX_CONDITION_COUNT,
    MAX_VALUE_COUNT,
    AllOf,
    Filter,
    InRange,
    OneOf,
    StartsWith,
    check_filter,
    holds,
)
from tandem.errors import AttributeInvalid, FilterInvalid
from tandem.v1 import attribute_pb2 as pb
from tandem.v1 import index_service_pb2
from tests.support.contract import made_filters


@given(made_filters.attributes_of(made_filters.values))
def test_attributes_survive_the_wire(attributes: Attributes) -> None:
    """Each of its own type: True does not come back as 1, nor 3 as 3.0."""
    item = index_service_pb2.Item(attributes=attributes_to_proto(attributes))
    received = index_service_pb2.Item.FromString(item.SerializeToString())

    got = attributes_from_proto(received.attributes)

    assert got == attributes
    assert {name: type(value) for name, value in got.items()} == {
        name: type(value) for name, value in attributes.items()
    }


@pytest.mark.parametrize(
    "messages",
    [
        {"a": pb.AttributeValue()},
        {"a b": pb.AttributeValue(flag=True)},
        {"a": pb.AttributeValue(real=float("nan"))},
        {"a": pb.AttributeValue(text="x" * 1025)},
        {"a": pb.AttributeValue(texts=pb.TextList(values=["x"] * 65))},
        {f"a{n}": pb.AttributeValue(flag=True) for n in range(65)},
    ],
)
def test_bad_attributes_are_refused(messages: dict[str, pb.AttributeValue]) -> None:
    with pytest.raises(AttributeInvalid):
        check_attributes(attributes_from_proto(messages))


@pytest.mark.parametrize(
    "attributes",
    [
        {"a": 2**63},
        {"a": "\ud800"},
        {"\ud800": 1},
        {"a": [1]},
        {"a": None},
        {"a": np.array([1, 2])},
        {"a": np.datetime64("NaT")},
    ],
)
def test_unsendable_values_are_refused(attributes: dict[str, AttributeValue]) -> None:
    with pytest.raises(AttributeInvalid, match="cannot be sent"):
        attributes_to_proto(attributes)


@pytest.mark.parametrize(
    ("given_value", "sent"),
    [
        (np.int64(2**53 + 1), 2**53 + 1),
        (np.float32(19.99), 19.99),
        (Decimal("19.99"), 19.99),
        (np.bool_(True), True),
        (["red", "round"], ("red", "round")),
        (np.array(["red", "round"]), ("red", "round")),
        (
            datetime(2026, 11, 28, 9, 0, tzinfo=timezone(timedelta(hours=1))),
            "2026-11-28T08:00:00+00:00",
        ),
        (np.datetime64("2026-11-28T09:00:00", "ns"), "2026-11-28T09:00:00.000000000"),
    ],
)
def test_values_as_tables_have_them_are_sent_as_what_they_are(
    given_value: object, sent: AttributeValue
) -> None:
    [got] = attributes_from_proto(attributes_to_proto({"a": given_value})).values()

    assert (got, type(got)) == (sent, type(sent))
    if not isinstance(sent, tuple):
        tree = OneOf("a", (given_value,))  # type: ignore[arg-type]
        assert filter_from_proto(filter_to_proto(tree)) == OneOf("a", (sent,))


@given(made_filters.filters_of(made_filters.values))
def test_filters_survive_the_wire(tree: Filter) -> None:
    received = pb.Filter.FromString(filter_to_proto(tree).SerializeToString())

    got = filter_from_proto(received)
    assert (repr(got), hash(got), got) == (repr(tree), hash(tree), tree)


def nested(depth: int) -> pb.Filter:
    """Returns a filter so deep."""
    message = pb.Filter(exists="a")
    for _ in range(depth - 1):
        message = pb.Filter(negated=message)
    return message


def several(*filters: pb.Filter) -> pb.Filter:
    """Returns all of them in one."""
    return pb.Filter(all_of=pb.FilterList(filters=filters))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (pb.Filter(), "no condition"),
        (pb.Filter(negated=pb.Filter()), "no condition"),
        (nested(9), "over 8 deep"),
        (several(*[pb.Filter(exists="a")] * 65), "over 64 conditions"),
        (several(*[several(*[several()] * 50)] * 50), "over 64 conditions"),
        (pb.Filter(equals=pb.Equality(name="a")), "nothing"),
        (pb.Filter(equals=pb.Equality(name="a", value={"texts": {"values": ["x"]}})), "list"),
        (pb.Filter(range=pb.Range(name="a")), "without bounds"),
    ],
)
def test_bad_filters_are_refused(message: pb.Filter, why: str) -> None:
    with pytest.raises(FilterInvalid, match=why):
        filter_from_proto(message)


def test_a_bad_filter_is_not_sent() -> None:
    with pytest.raises(FilterInvalid):
        filter_to_proto(InRange("a"))


def test_composed_and_decomposed_letters_match_alike() -> None:
    """File names of macOS are decomposed; other texts and types are compared as they are."""
    nfc, nfd = "Zürich", unicodedata.normalize("NFD", "Zürich")
    for wanted in (nfc, nfd):
        for tree in (OneOf("city", (1, wanted)), StartsWith("city", wanted[:-2])):
            checked = checked_filter(filter_to_proto(~tree & AllOf(()))).tree
            assert [holds(checked, {"city": each}) for each in (nfc, nfd, "Zurich")] == [
                *(False, False, True)
            ]
    assert checked_filter(filter_to_proto(OneOf("n", (1, 1.5, "a")))).tree == OneOf(
        "n", (1, 1.5, "a")
    )


def test_zero_bounds_and_empty_values_are_values() -> None:
    """They are sent, where proto3 would leave plain zeros out."""
    zero, empty = InRange("a", at_least=0.0), OneOf("a", ("",))

    assert filter_from_proto(filter_to_proto(zero)) == zero
    assert filter_from_proto(filter_to_proto(empty)) == empty
    assert filter_from_proto(filter_to_proto(StartsWith("a", ""))) == StartsWith("a", "")


def field(number: int, payload: bytes) -> bytes:
    """Returns a length-delimited field as it stands in a message."""
    length, size = bytearray(), len(payload)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + payload


# Bytes of the right shape, mostly: unstructured ones hardly ever parse.
leaves = st.binary(max_size=8) | st.sampled_from(
    [
        field(8, b"a"),
        filter_to_proto(OneOf("a", (1, "x", True))).SerializeToString(),
        filter_to_proto(InRange("a", above=1.0)).SerializeToString(),
        pb.Filter(range=pb.Range(name="a", above=float("nan"))).SerializeToString(),
        pb.Filter(equals=pb.Equality(name="a")).SerializeToString(),
    ]
)
filter_bytes = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda all_: field(1, b"".join(field(1, x) for x in all_)))
        | inner.map(lambda payload: field(3, payload))
        | st.tuples(st.integers(1, 8), inner).map(lambda made: field(*made))
        | st.lists(inner, max_size=3).map(b"".join)
    ),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(filter_bytes)
def test_any_message_is_read_or_refused_by_name(message_bytes: bytes) -> None:
    """Nothing but FilterInvalid, whatever parses; and what is read is valid."""
    try:
        message = pb.Filter.FromString(message_bytes)
    except DecodeError:
        return

    try:
        tree = filter_from_proto(message)
    except FilterInvalid:
        return

    check_filter(tree)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
def test_any_attributes_are_read_or_refused_by_name(message_bytes: bytes) -> None:
    """Nothing but AttributeInvalid, whatever parses."""
    try:
        item = index_service_pb2.Item.FromString(field(3, message_bytes))
    except DecodeError:
        return

    try:
        check_attributes(attributes_from_proto(item.attributes))
    except AttributeInvalid:
        return


def test_values_and_conditions_are_counted_before_any_is_looked_at() -> None:
    """Each of these has its own fault, which would be reported if it had been looked at."""
    values = [pb.AttributeValue()] * (MAX_VALUE_COUNT + 1)
    with pytest.raises(FilterInvalid, match="has 1,001 values; send at most 1,000"):
        filter_from_proto(pb.Filter(one_of=pb.OneOf(name="style", values=values)))
    filters = pb.FilterList(filters=[pb.Filter()] * (MAX_CONDITION_COUNT + 1))
    for group in (pb.Filter(all_of=filters), pb.Filter(any_of=filters)):
        with pytest.raises(FilterInvalid, match="over 64 conditions"):
            filter_from_proto(group)


def test_values_of_all_conditions_are_bounded() -> None:
    conditions = tuple(OneOf(f"name{number}", (1,) * 500) for number in range(20))
    message = filter_to_proto(AllOf(conditions))
    message.all_of.filters.append(message.all_of.filters[0])
    with pytest.raises(FilterInvalid, match="10,500 values in all; send at most 10,000"):
        filter_from_proto(message)


def test_a_filters_bytes_are_bounded() -> None:
    """64 conditions of 1,000 long texts each would be 64 MB."""
    texts = [f"{number:04}{'x' * 1000}" for number in range(1000)]

    def conditions(count: int) -> pb.Filter:
        one_of = [OneOf(f"name{number}", tuple(texts)) for number in range(count)]
        return filter_to_proto(AllOf(tuple(one_of)))

    filter_from_proto(conditions(1))
    with pytest.raises(FilterInvalid, match="bytes; send at most 1,048,576"):
        filter_from_proto(conditions(2))
