"""Converts a failed call into a named error, also if the server is not Tandem."""

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from tandem.client.access import Access
from tandem.errors import (
    RETRY_DELAY_KEY,
    DeadlineExceeded,
    PermissionDenied,
    ServerUnknown,
    ServiceUnavailable,
    TandemError,
    Unauthenticated,
    error_from_reason,
    error_of_exhausted,
)

_MAX_DETAILS_CHARACTERS = 200
# gRPC's own name (gRFC A6), and HTTP's, which a proxy before the server may send.
_PUSHBACK_KEY = "grpc-retry-pushback-ms"
_RETRY_AFTER_KEY = "retry-after"
_MAX_PUSHBACK_SECONDS = 3600.0

_Answer = TypeVar("_Answer")
Call = Callable[..., Any]
"""Takes the name of a method, its request, and a timeout in seconds; returns its response."""


class Pushback(enum.Enum):
    """An answer to whether a call may be repeated, other than a delay."""

    NEVER = "never"
    """The same call can never succeed, or must not be repeated."""


@contextmanager
def calling(address: str, stub_kind: Callable[[grpc.Channel], object]) -> Iterator[Call]:
    """Yields what calls a method that the SDK does not have; it raises a TandemError."""
    access = Access.from_environment()
    with access.open_channel(address) as channel:
        stub = stub_kind(channel)

        def call(method: str, request: object, timeout_seconds: float = 30.0) -> Any:  # noqa: ANN401 (the method's response)
            metadata = access.metadata()
            try:
                return getattr(stub, method)(request, timeout=timeout_seconds, metadata=metadata)
            except grpc.RpcError as error:
                raise error_of(error, address) from error

        yield call


def error_of(
    error: grpc.RpcError, target: str, sent: Mapping[str, str] | None = None
) -> TandemError:
    """Returns the named error of a failed call.

    Tandem names all of its errors. One without a name comes from gRPC, a proxy or another server.
    The error's metadata has the request id and the trace id of the metadata that were `sent`, by
    which an operator finds the call, and the delay that the server asks for.
    """
    metadata = _text_metadata(error.trailing_metadata())
    named = _named_error(error, target, metadata)
    named.metadata.update(_call_ids(sent or {}))
    # The delay is the constructor's default, not the server's.
    named.metadata.pop(RETRY_DELAY_KEY, None)
    if (delay := _pushback(metadata)) is not None:
        text = delay.value if isinstance(delay, Pushback) else f"{delay:.3f}"
        named.metadata[RETRY_DELAY_KEY] = text
    return named


def is_break(error: grpc.RpcError) -> bool:
    """Returns whether the call failed with its connection: neither server nor proxy answered it."""
    return not error.trailing_metadata()


def pushback_of(error: TandemError) -> float | Pushback | None:
    """Returns the seconds after which the server wants a repetition, or None if it named none."""
    text = error.metadata.get(RETRY_DELAY_KEY)
    if text is None:
        return None
    return Pushback.NEVER if text == Pushback.NEVER.value else float(text)


def _call_ids(sent: Mapping[str, str]) -> dict[str, str]:
    ids = {"request_id": sent.get("x-request-id", "")}
    ids["trace_id"] = sent.get("traceparent", "").partition("-")[2].partition("-")[0]
    return {name: value for name, value in ids.items() if value}


def _pushback(metadata: Mapping[str, str]) -> float | Pushback | None:
    if (text := metadata.get(_PUSHBACK_KEY)) is not None:
        # Whatever is not a number of milliseconds forbids a repetition.
        is_delay = text.isascii() and text.isdigit()
        return min(int(text) / 1000, _MAX_PUSHBACK_SECONDS) if is_delay else Pushback.NEVER
    try:
        seconds = float(metadata[_RETRY_AFTER_KEY])
    except (KeyError, ValueError):  # It may also be a date.
        return None
    return min(max(seconds, 0.0), _MAX_PUSHBACK_SECONDS) if math.isfinite(seconds) else None


def _named_error(error: grpc.RpcError, target: str, metadata: Mapping[str, str]) -> TandemError:
    code, details = error.code(), error.details() or ""
    if reason := metadata.get("tandem-reason"):
        return error_from_reason(reason, details, {})
    # A proxy may send a whole page.
    why = " ".join(details.split())[:_MAX_DETAILS_CHARACTERS]
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(what=f"the call to {target}")
        case grpc.StatusCode.UNAVAILABLE:
            return ServiceUnavailable(service=target, why=why)
        # gRPC reports a broken connection or stream as INTERNAL.
        case grpc.StatusCode.CANCELLED | grpc.StatusCode.ABORTED | grpc.StatusCode.INTERNAL:
            return ServiceUnavailable(
                service=target, why=f"the call broke, or there is no Tandem ({why})"
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return error_of_exhausted(target, why)
        case grpc.StatusCode.UNAUTHENTICATED:
            return Unauthenticated(why=f"the proxy before {target} says: {why}")
        case grpc.StatusCode.PERMISSION_DENIED:
            return PermissionDenied(
                caller="the caller", what=f"pass the proxy before {target}: {why}"
            )
        case _:
            return ServerUnknown(target=target, why=f"it answered {code.name}: {why}")


def checked_answer(answer: _Answer | None, target: str) -> _Answer:
    """Returns the answer; raises ServerUnknown if gRPC could not parse it."""
    if answer is None:
        raise ServerUnknown(target=target, why="its answer is not a message of tandem.v1")
    return answer


def check_answered(is_answered: bool, target: str) -> None:
    """Raises ServerUnknown if a stream ended with OK but without a final answer."""
    if not is_answered:
        raise ServerUnknown(target=target, why="it ended a stream without an answer")


def _text_metadata(metadata: object) -> Mapping[str, str]:
    pairs = metadata if metadata is not None else ()
    return {key: value for key, value in pairs if isinstance(value, str)}  # type: ignore[attr-defined]
