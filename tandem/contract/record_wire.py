"""Converts records to messages and back, by a table of the fields that are not the same in both.

    COVERAGE_WIRE = RecordWire(Coverage, pb.Coverage, missing_shards=MISSING_WIRE)

`to_proto` and `from_proto` of it convert every other field of a Coverage by its name.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

from tandem.errors import TandemError

Record = TypeVar("Record")
AnyMessage = TypeVar("AnyMessage", bound=Message)
Given = TypeVar("Given")
Read = TypeVar("Read")
Member = TypeVar("Member", bound=enum.Enum)


class Converter(Protocol):
    """Says how one field travels, and under which name: a `Field`, or the wire of its records."""

    @property
    def name(self) -> str: ...

    @property
    def to_proto(self) -> Callable[..., Any]: ...

    @property
    def from_proto(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Field(Generic[Given, Read]):
    """Says how a field travels whose type or name is another in the message."""

    to_proto: Callable[[Given], Any]
    from_proto: Callable[[Any], Read]
    name: str = ""
    """The message's; empty if it is the record's."""

    def named(self, name: str) -> "Field[Given, Read]":
        """Returns the same for a field that the message calls so."""
        return replace(self, name=name)


class RecordWire(Generic[Record, AnyMessage]):
    """Converts one kind of records, which are dataclasses, to one kind of messages and back.

    A field that may be None is left unset then, and is None where a message does not have it.
    """

    name = ""

    def __init__(
        self,
        record: type[Record],
        message: type[AnyMessage],
        *,
        own: Iterable[str] = (),
        **converters: Converter | str,
    ) -> None:
        """Takes the converters of fields that differ, or only the message's names for them.

        The record's `own` fields have none in the message. Raises KeyError for another that has
        none.
        """
        self._record = record
        self._message = message
        self._to: list[tuple[str, str, Callable[[Any], Any] | None]] = []
        self._from: list[tuple[str, str, Callable[[Any], Any] | None, bool]] = []
        for each in fields(record):  # type: ignore[arg-type]
            if each.name in own:
                continue
            given = converters.pop(each.name, each.name)
            name = given if isinstance(given, str) else given.name or each.name
            described = message.DESCRIPTOR.fields_by_name[name]
            write = read = None
            if not isinstance(given, str):
                write, read = given.to_proto, given.from_proto
            elif described.is_repeated:
                read = dict if described.message_type is not None else list  # a map, or values
            is_optional = described.has_presence and "None" in str(each.type)
            self._to.append((each.name, name, write))
            self._from.append((each.name, name, read, is_optional))
        if converters:
            raise KeyError(f"{record.__name__} has no {', '.join(converters)}")

    def values(self, record: Record, **more: Any) -> dict[str, Any]:  # noqa: ANN401 (of any field)
        """Returns the arguments of the message's constructor, and `more` of them."""
        for field, name, convert in self._to:
            value = getattr(record, field)
            if value is not None:
                more[name] = value if convert is None else convert(value)
        return more

    def to_proto(self, record: Record, **more: Any) -> AnyMessage:  # noqa: ANN401 (of any field)
        """Returns the message of a record, with `more` fields that the record does not have."""
        return self._message(**self.values(record, **more))

    def from_proto(self, message: Message, **own: Any) -> Record:  # noqa: ANN401 (of any field)
        """Returns the record of a message, with the record's `own` fields; raises what it raises.

        The message may be of another kind that has the same fields.
        """
        for field, name, convert, is_optional in self._from:
            if is_optional and not message.HasField(name):
                own[field] = None
            else:
                value = getattr(message, name)
                own[field] = value if convert is None else convert(value)
        return self._record(**own)


def repeated(each: Converter) -> Field[Iterable[Any], tuple[Any, ...]]:
    """Returns how a field with several values travels, of which each travels as `each` says."""
    to_proto, from_proto = each.to_proto, each.from_proto
    return Field(
        lambda values: [to_proto(value) for value in values],
        lambda messages: tuple([from_proto(message) for message in messages]),
    )


def or_none(converter: Field[Given, Read]) -> Field[Given, Read | None]:
    """Returns how a field travels whose number is 0, the contract's UNSPECIFIED, for None."""
    from_proto = converter.from_proto
    return replace(converter, from_proto=lambda value: from_proto(value) if value else None)  # type: ignore[return-value, arg-type]


def numbered(kind: type[Member]) -> Field[Member, Member]:
    """Returns how an enum travels whose values are the contract's numbers."""
    return Field(lambda member: member.value, kind)


def by_name(
    kind: type[Member], numbers: EnumTypeWrapper, prefix: str
) -> Field[Member, Member | None]:
    """Returns how an enum travels whose names are the contract's; a number without one is None."""
    members: Mapping[int, Member] = {numbers.Value(f"{prefix}{each.name}"): each for each in kind}
    values = {member: number for number, member in members.items()}
    return Field(values.__getitem__, members.get)


def or_error(convert: Callable[[AnyMessage], Read], message: AnyMessage) -> Read | TandemError:
    """Returns what the message means, or why it means nothing: for one of several."""
    try:
        return convert(message)
    except TandemError as error:
        return error.kept()
