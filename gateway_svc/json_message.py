"""Converts JSON to protobuf messages and back, as protobuf's own mapping says."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from google.protobuf import json_format
from google.protobuf.message import Message

from gateway_svc.malformed import malformed
from gateway_svc.message_shape import misshapen
from gateway_svc.message_writer import write_json
from tandem.contract.request_limits import RequestLimit
from tandem.errors import MessageTooLarge

AnyMessage = TypeVar("AnyMessage", bound=Message)
Answer = TypeVar("Answer")
Given = TypeVarTuple("Given")

# In the event loop up to this size, which takes about a millisecond.
_LARGE_BYTES = 64 * 1024
_MAX_DETAIL_CHARACTERS = 300
_MAX_NAME_CHARACTERS = 64
# json_format's message for a field that does not exist.
_UNKNOWN_FIELD = re.compile(
    r'Message type "(?P<message>tandem\.v1\.[\w.]+)" has no field named "(?P<field>.*?)" at "',
    re.DOTALL,
)
# json_format's message for the name of an enum's value that does not exist.
_UNKNOWN_NAME = re.compile(
    r"Failed to parse (?P<field>\w+) field: Invalid enum value (?P<value>.*?) for enum type "
    r"(?P<enum>tandem\.v1\.[\w.]+)",
    re.DOTALL,
)
# json_format's message for the hundredth level of messages.
_TOO_DEEP = "Message too deep"
_DEPTH = ("it is nested too deeply", "send fewer levels")
_NAMES_REMEDY = "send one of them"
_UTF8_REMEDY = "send JSON in UTF-8, without a byte order mark"
# Commas of texts count as well; one of 8 KiB rarely has more.
_TEXT_SIGN_COUNT = 2_000


async def read_json(body: bytes, limit: RequestLimit) -> Any:  # noqa: ANN401 (JSON)
    """Returns the JSON value of a body; raises RequestMalformed or MessageTooLarge."""
    return await by_size(len(body), _read, body, limit)


async def message_from_json(
    value: Any,  # noqa: ANN401 (JSON)
    message_class: type[AnyMessage],
    *,
    byte_count: int = 0,
) -> AnyMessage:
    """Returns the message of a JSON value, which had `byte_count`; raises RequestMalformed."""
    return await by_size(byte_count, parsed, value, message_class)


def parsed(value: Any, message_class: type[AnyMessage]) -> AnyMessage:  # noqa: ANN401 (JSON)
    """Returns the message of a JSON value; raises RequestMalformed."""
    message = message_class()
    try:
        if why := misshapen(value, message):
            raise malformed(why)
        json_format.ParseDict(value, message)
    # json_format raises these for odd values, ParseError for most.
    except (json_format.ParseError, ValueError, TypeError, KeyError, AttributeError) as error:
        text = str(error)
        if _TOO_DEEP in text:
            raise malformed(*_DEPTH) from None
        if why := _unknown_name(text, message):
            raise malformed(why, _NAMES_REMEDY) from None
        raise malformed(_unknown_field(text, message) or _short(error)) from None
    except RecursionError:
        raise malformed(*_DEPTH) from None
    return message


async def by_size(byte_count: int, work: Callable[[*Given], Answer], *given: *Given) -> Answer:
    """Returns work(*given); in a thread if what it reads has that many bytes and is large."""
    if byte_count < _LARGE_BYTES:
        return work(*given)
    return await asyncio.to_thread(work, *given)


async def parse_message(
    body: bytes, message_class: type[AnyMessage], limit: RequestLimit
) -> AnyMessage:
    """Returns the message of a JSON body; raises RequestMalformed or MessageTooLarge."""
    value = await read_json(body, limit)
    return await message_from_json(value, message_class, byte_count=len(body))


def message_to_json(message: Message, *, is_canonical: bool = True) -> bytes:
    """Returns protobuf's canonical JSON, or one with the proto's names and every field."""
    return write_json(message, is_canonical=is_canonical)


def check_sign_count(body: bytes, limit: RequestLimit) -> None:
    """Raises MessageTooLarge if a body has far more values than the method's messages may have.

    Counting is fast; parsing makes an object of every value.
    """
    count = body.count(b",") + body.count(b"[") + body.count(b"{")
    most = limit.max_field_count + _TEXT_SIGN_COUNT
    if count > most:
        raise MessageTooLarge(why=f"the body has over {most:,} values")


def _read(body: bytes, limit: RequestLimit) -> Any:  # noqa: ANN401 (JSON)
    check_sign_count(body, limit)
    return _loaded(body)


def _loaded(body: bytes) -> Any:  # noqa: ANN401 (JSON)
    text = _text(body)
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_members)
    except RecursionError:
        raise malformed(*_DEPTH) from None
    except ValueError as error:
        if "set_int_max_str_digits" in str(error):  # advice for Python programs
            raise malformed("a number has too many digits", "send a smaller one") from None
        raise malformed(f"it is not JSON: {_short(error)}") from None


def _text(body: bytes) -> str:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed(f"the body is not UTF-8 at byte {error.start:,}", _UTF8_REMEDY) from None
    if text.startswith("\N{BYTE ORDER MARK}"):
        raise malformed("the body begins with a byte order mark", _UTF8_REMEDY)
    if not text:
        raise malformed("the body is empty")
    return text


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object; two readers could see different values of a member that is there twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        # Each of a million names is looked at once: the last may be the one that repeats.
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise malformed(f"the member {twice[:_MAX_NAME_CHARACTERS]!a} occurs twice", "send it once")
    if not (names_text := "".join(members)).isascii():
        try:
            names_text.encode()
        except UnicodeEncodeError:
            # protobuf fails over it without naming it.
            raise malformed(
                "a member's name has a lone surrogate", "send text that is Unicode"
            ) from None
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _unknown_field(text: str, message: Message) -> str:
    """Returns what names the field and all fields of its message; empty for another fault."""
    found = _UNKNOWN_FIELD.search(text)
    if not found:
        return ""
    kind = message.DESCRIPTOR.file.pool.FindMessageTypeByName(found["message"])
    names, name = [field.name for field in kind.fields], found["field"][:_MAX_NAME_CHARACTERS]
    close = difflib.get_close_matches(name, names, n=1)
    meant = f"; did you mean {close[0]}?" if close else "."
    return f"{kind.name} has no field {name!a}{meant} Its fields are {', '.join(names)}"


def _unknown_name(text: str, message: Message) -> str:
    """Returns what names an enum's field and all names of its values; empty for another fault."""
    found = _UNKNOWN_NAME.search(text)
    if not found:
        return ""
    kind = message.DESCRIPTOR.file.pool.FindEnumTypeByName(found["enum"])
    names = ", ".join(each.name for each in kind.values)
    return f"{found['field']} is {found['value'][:_MAX_NAME_CHARACTERS]!a}, none of {names}"


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.encode("utf-8", "replace").decode()[:_MAX_DETAIL_CHARACTERS]
