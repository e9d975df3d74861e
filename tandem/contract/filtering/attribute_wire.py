"""Converts attributes and filters between protobuf messages and our own types."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from unicodedata import normalize

from typing_extensions import assert_never

from tandem.contract.filtering.attributes import (
    MAX_ATTRIBUTE_COUNT,
    Attributes,
    AttributeValue,
)
from tandem.contract.filtering.filters import (
    MAX_CONDITION_COUNT,
    MAX_DEPTH,
    MAX_FILTER_BYTES,
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
    Value,
    check_filter,
    check_filter_value_count,
    check_value_count,
)
from tandem.contract.filtering.plain_values import plain_value
from tandem.contract.record_wire import Field, RecordWire
from tandem.errors import AttributeInvalid, FilterInvalid
from tandem.v1 import attribute_pb2 as pb


def attributes_from_proto(messages: Mapping[str, pb.AttributeValue]) -> Attributes:
    """Returns the attributes; raises `AttributeInvalid` for too many, and for unknown values."""
    # Before they are converted: there may be very many.
    if len(messages) > MAX_ATTRIBUTE_COUNT:
        raise AttributeInvalid(
            why=f"there are {len(messages):,}; send at most {MAX_ATTRIBUTE_COUNT}"
        )
    attributes: dict[str, AttributeValue] = {}
    for name, message in messages.items():
        value = value_from_proto(message)
        if value is None:
            raise AttributeInvalid(
                why=f"{name[:80]!a} has no value of a kind that attributes have; send a text, a "
                "number, true, false or a list of texts, or leave it out"
            )
        attributes[name] = value
    return attributes


def attributes_to_proto(attributes: Mapping[str, object]) -> dict[str, pb.AttributeValue]:
    """Returns the messages for `attributes`, whose values may be of NumPy, dates or lists.

    Raises `AttributeInvalid` for values that no message can carry; the server checks the rest.
    """
    if not isinstance(attributes, Mapping):
        raise AttributeInvalid(why=f"they are of type {type(attributes).__name__}; send a dict")
    messages: dict[str, pb.AttributeValue] = {}
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise AttributeInvalid(why=f"a name is of type {type(name).__name__}; send a str")
        try:
            name.encode()
            messages[name] = value_to_proto(value)
        except (TypeError, ValueError) as error:
            raise AttributeInvalid(why=f"{name[:80]!a} cannot be sent: {error}") from error
    return messages


ATTRIBUTES_WIRE = Field(attributes_to_proto, attributes_from_proto)


def value_from_proto(message: pb.AttributeValue) -> AttributeValue | None:
    """Returns the value without checks; None if it is unset or of an unknown type."""
    kind = message.WhichOneof("value")
    if kind == "texts":
        return tuple(message.texts.values)
    value: AttributeValue | None = None if kind is None else getattr(message, kind)
    return value


def value_to_proto(value: object) -> pb.AttributeValue:
    """Returns the message; raises ValueError or TypeError for a value that it cannot carry."""
    match value:
        case bool():
            return pb.AttributeValue(flag=value)
        case int():
            return pb.AttributeValue(integer=value)
        case float():
            return pb.AttributeValue(real=value)
        case str():
            return pb.AttributeValue(text=value)
        case tuple() | list() if all(isinstance(each, str) for each in value):
            return pb.AttributeValue(texts=pb.TextList(values=value))
        case _ if (plain := plain_value(value)) is not None:
            return value_to_proto(plain)
        case _:
            raise TypeError(f"it is {value}; leave it out")


def filter_from_proto(message: pb.Filter) -> Filter:
    """Returns a validated filter; raises `FilterInvalid`."""
    if (byte_count := message.ByteSize()) > MAX_FILTER_BYTES:
        raise FilterInvalid(
            why=f"it has {byte_count:,} bytes; send at most {MAX_FILTER_BYTES:,}, in fewer or "
            "shorter values"
        )
    tree = _Reader().filter(message, depth=1)
    check_filter(tree)
    return tree


@dataclass(frozen=True, slots=True)
class CheckedFilter:
    """A checked filter and its message, by which it is compared and forwarded."""

    message: bytes
    tree: Filter = field(compare=False)


def _in_all_forms(tree: Filter) -> Filter:
    """Returns the filter whose texts match composed and decomposed letters alike."""
    match tree:
        case AllOf(filters):
            return AllOf(tuple(map(_in_all_forms, filters)))
        case AnyOf(filters):
            return AnyOf(tuple(map(_in_all_forms, filters)))
        case Not(negated):
            return Not(_in_all_forms(negated))
        case OneOf(name, values):
            return OneOf(name, tuple(form for each in values for form in _forms(each)))
        case StartsWith(name, prefix) if not prefix.isascii():
            return AnyOf(tuple(StartsWith(name, str(form)) for form in _forms(prefix)))
        case _:
            return tree


def _forms(value: Value) -> Iterable[Value]:
    if not isinstance(value, str) or value.isascii():
        return (value,)
    return dict.fromkeys((value, normalize("NFC", value), normalize("NFD", value)))


def checked_filter(message: pb.Filter) -> CheckedFilter:
    """Returns a validated filter; raises `FilterInvalid`."""
    tree = _in_all_forms(filter_from_proto(message))
    return CheckedFilter(message.SerializeToString(deterministic=True), tree)


def filter_to_proto(tree: Filter) -> pb.Filter:
    """Returns the message for `tree`; raises `FilterInvalid`."""
    check_filter(tree)
    return _filter_to_proto(tree)


class _Reader:
    """Reads one filter message, and stops once it is too deep or too large."""

    def __init__(self) -> None:
        # Every group contains a condition or counts as one, so no valid filter has more nodes.
        self._nodes_left = MAX_CONDITION_COUNT * MAX_DEPTH
        self._value_count = 0

    def filter(self, message: pb.Filter, depth: int) -> Filter:
        self._nodes_left -= 1
        if depth > MAX_DEPTH:
            raise FilterInvalid(why=f"it is nested over {MAX_DEPTH} deep; send a flatter one")
        if self._nodes_left < 0:
            raise FilterInvalid(why=f"it has over {MAX_CONDITION_COUNT} conditions; send fewer")
        match message.WhichOneof("condition"):
            case "all_of":
                return AllOf(self._filters(message.all_of, depth))
            case "any_of":
                return AnyOf(self._filters(message.any_of, depth))
            case "negated":
                return Not(self.filter(message.negated, depth + 1))
            case "equals":
                equality = message.equals
                return OneOf(equality.name, (_wanted(equality.name, equality.value),))
            case "one_of":
                name = message.one_of.name
                # Counted first, because there may be very many.
                count = len(message.one_of.values)
                check_value_count(name, count)
                self._value_count += count
                check_filter_value_count(self._value_count)
                return OneOf(name, tuple(_wanted(name, value) for value in message.one_of.values))
            case "range":
                return _RANGE_WIRE.from_proto(message.range)
            case "prefix":
                return StartsWith(message.prefix.name, message.prefix.prefix)
            case "exists":
                return Exists(message.exists)
            case _:
                raise FilterInvalid(why="it has no condition that this version knows; send one")

    def _filters(self, message: pb.FilterList, depth: int) -> tuple[Filter, ...]:
        if len(message.filters) > MAX_CONDITION_COUNT:
            raise FilterInvalid(why=f"it has over {MAX_CONDITION_COUNT} conditions; send fewer")
        return tuple(self.filter(each, depth + 1) for each in message.filters)


def _wanted(name: str, message: pb.AttributeValue) -> Value:
    value = value_from_proto(message)
    if value is None:
        raise FilterInvalid(why=f"{name[:80]!a} is compared with nothing; send a value")
    if isinstance(value, tuple):
        raise FilterInvalid(why=f"{name[:80]!a} is compared with a list; send one of its elements")
    return value


_RANGE_WIRE = RecordWire(InRange, pb.Range)


def _filter_to_proto(tree: Filter) -> pb.Filter:
    match tree:
        case AllOf(filters):
            return pb.Filter(all_of=pb.FilterList(filters=map(_filter_to_proto, filters)))
        case AnyOf(filters):
            return pb.Filter(any_of=pb.FilterList(filters=map(_filter_to_proto, filters)))
        case Not(negated):
            return pb.Filter(negated=_filter_to_proto(negated))
        case OneOf(name, (value,)):
            return pb.Filter(equals=pb.Equality(name=name, value=value_to_proto(value)))
        case OneOf(name, values):
            return pb.Filter(one_of=pb.OneOf(name=name, values=map(value_to_proto, values)))
        case InRange():
            return pb.Filter(range=_RANGE_WIRE.to_proto(tree))
        case StartsWith(name, prefix):
            return pb.Filter(prefix=pb.Prefix(name=name, prefix=prefix))
        case Exists(name):
            return pb.Filter(exists=name)
        case _:
            assert_never(tree)
