"""Converts JSON to protobuf messages and back by protobuf's own mapping, within limits."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from gateway_svc.faults import malformed
from tandem.contract.methods import RequestLimit
from tandem.errors import MessageTooLarge

AnyMessage = TypeVar("AnyMessage", bound=Message)
Answer = TypeVar("Answer")
Given = TypeVarTuple("Given")

# In the event loop up to this size, which json_format takes one or two milliseconds for.
_LARGE_BYTES = 4 * 1024
_MAX_NAME_CHARACTERS = 64
# Of json_format's message, which repeats itself for each level and says at its end where it is.
_HEAD_CHARACTERS, _TAIL_CHARACTERS = 200, 800
_DEPTH = ("it is nested too deeply", "send fewer levels")
# Commas of texts count as well; one of 8 KiB rarely has more.
_TEXT_SIGN_COUNT = 2_000
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_ROUNDED_FROM = 2**53


async def read_json(body: bytes, limit: RequestLimit, batch: str = "") -> Any:  # noqa: ANN401 (JSON)
    """Returns the JSON value of a body; raises RequestMalformed or MessageTooLarge.

    The elements of the member `batch` are left to `check_unicode`, each for itself.
    """
    return await by_size(len(body), _read, body, limit, batch)


def check_unicode(value: Any) -> None:  # noqa: ANN401 (JSON)
    """Raises RequestMalformed for a lone surrogate: protobuf fails over one without naming it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        before = error.object[max(0, error.start - _MAX_NAME_CHARACTERS) : error.start]
        raise malformed(
            f"there is a lone surrogate after {before!a}", "send text that is Unicode"
        ) from None
    except RecursionError:
        raise malformed(*_DEPTH) from None


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
    try:
        _check(value, message_class.DESCRIPTOR, message_class.DESCRIPTOR.name)
        return json_format.ParseDict(value, message_class())
    except RecursionError:
        raise malformed(*_DEPTH) from None
    # json_format raises these for odd values, ParseError for most.
    except (json_format.ParseError, ValueError, TypeError, ArithmeticError) as error:
        raise malformed(_short(error)) from None


async def by_size(byte_count: int, work: Callable[[*Given], Answer], *given: *Given) -> Answer:
    """Returns work(*given); in a thread if what it reads has that many bytes and is large."""
    if byte_count < _LARGE_BYTES:
        return work(*given)
    return await asyncio.to_thread(work, *given)


def message_to_json(message: Message, *, is_canonical: bool = True) -> bytes:
    """Returns protobuf's canonical JSON, or /v1's: the proto's names, every field, plain values."""
    value = json_format.MessageToDict(
        message,
        preserving_proto_field_name=not is_canonical,
        always_print_fields_with_no_presence=not is_canonical,
    )
    shown = value if is_canonical else _with_plain_attributes(value)
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()


def _with_plain_attributes(value: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, list):
        return [_with_plain_attributes(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: {key: _plain(typed) for key, typed in each.items()}
        if name == "attributes"
        else _with_plain_attributes(each)
        for name, each in value.items()
    }


def _plain(typed: dict[str, Any]) -> Any:  # noqa: ANN401 (JSON)
    """Returns an attribute's value, but a typed one where a reader's doubles would round it."""
    number: float
    match typed:
        case {"text": value} | {"flag": value} | {"texts": {"values": value}}:
            return value
        case {"integer": digits}:
            number = int(digits)
        case {"real": real}:
            number = float(real)
        case _:
            return typed
    return number if abs(number) < _ROUNDED_FROM else typed


def _read(body: bytes, limit: RequestLimit, batch: str) -> Any:  # noqa: ANN401 (JSON)
    # Counting is fast; parsing makes an object of every value.
    count = body.count(b",") + body.count(b"[") + body.count(b"{")
    most = limit.max_field_count + _TEXT_SIGN_COUNT
    if count > most:
        raise MessageTooLarge(why=f"the body has over {most:,} values")
    try:
        value = json.loads(
            body.decode(), parse_constant=_refuse_constant, object_pairs_hook=_members
        )
        if b"\\u" in body:
            check_unicode({**value, batch: None} if isinstance(value, dict) else value)
    except RecursionError:
        raise malformed(*_DEPTH) from None
    except UnicodeDecodeError as error:
        raise malformed(
            f"the body is not UTF-8 at byte {error.start:,}", "send JSON in UTF-8"
        ) from None
    except ValueError as error:
        raise malformed(f"it is not JSON: {_short(error)}") from None
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object; two readers could see different values of a member that is there twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        # Each of a million names is looked at once: the last may be the one that repeats.
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise malformed(f"the member {twice[:_MAX_NAME_CHARACTERS]!a} occurs twice", "send it once")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _check(value: Any, kind: Any, where: str) -> None:  # noqa: ANN401 (JSON; two descriptors)
    """Raises RequestMalformed for what json_format would read as something else.

    It iterates over a text or a list in place of an object, keeps the last of two names of one
    field, skips what is not base64, and takes `true` for a number. The rest it refuses itself.
    """
    if not isinstance(value, dict):
        raise malformed(f"{where} is not a JSON object")
    fields = {name: field for field in kind.fields for name in (field.name, field.json_name)}
    given: dict[str, str] = {}
    for name, each in value.items():
        if (field := fields.get(name)) is None:
            continue
        place = f"{where}.{name}"
        if (other := given.setdefault(field.name, name)) != name:
            raise malformed(f"{place} and {other} are one field", "send it once")
        if isinstance(each, list) and field.is_repeated:
            for number, element in enumerate(each):
                _check_element(element, field, f"{place}[{number}]")
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            field = field.message_type.fields_by_name["value"]
            for key, element in each.items() if isinstance(each, dict) else ():
                _check_element(element, field, f"{place}[{key!a:.64}]")
        elif each is not None:
            _check_element(each, field, place)


def _check_element(value: Any, field: FieldDescriptor, place: str) -> None:  # noqa: ANN401 (JSON)
    if field.message_type is not None:
        # Others have a JSON of their own: a Duration is a text.
        if field.message_type.file.package == "tandem.v1":
            _check(value, field.message_type, place)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        # Four characters are three bytes, so one alone is less than a byte.
        is_base64 = isinstance(value, str) and _BASE64.fullmatch(value) is not None
        if not is_base64 or len(value.rstrip("=")) % 4 == 1:
            raise malformed(f"{place} is not base64", "send the bytes as base64")
    elif field.type != FieldDescriptor.TYPE_BOOL and (
        isinstance(value, bool) or not isinstance(value, str | int | float)
    ):
        raise malformed(f"{place} is neither a text nor a number", "send one of them")


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    if len(text) > _HEAD_CHARACTERS + _TAIL_CHARACTERS:
        text = f"{text[:_HEAD_CHARACTERS]} … {text[-_TAIL_CHARACTERS:]}"
    return text.encode("utf-8", "replace").decode()
