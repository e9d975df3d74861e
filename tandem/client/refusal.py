"""Converts a failed call into a named error, also if the server is not Tandem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import grpc

from tandem.errors import (
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

_Answer = TypeVar("_Answer")


def error_of(error: grpc.RpcError, target: str) -> TandemError:
    """Returns the named error of a failed call.

    Tandem names all of its errors. One without a name comes from gRPC, a proxy or another server.
    """
    metadata = _text_metadata(error.trailing_metadata())
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
