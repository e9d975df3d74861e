"""What a failed call means: Tandem's own error by its name, or what else stands at the address."""

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
    """Returns the named error that a failed call carries.

    One without a name is not Tandem's, which gives every error of its own one: it is gRPC's, of
    this side or the other, a proxy's, or another server's.
    """
    metadata = _text_metadata(error.trailing_metadata())
    code, details = error.code(), error.details() or ""
    if reason := metadata.get("tandem-reason"):
        return error_from_reason(reason, details, {})
    # A proxy's may be a whole page.
    why = " ".join(details.split())[:_MAX_DETAILS_CHARACTERS]
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(what=f"the call to {target}")
        case grpc.StatusCode.UNAVAILABLE:
            return ServiceUnavailable(service=target, why=why)
        # INTERNAL is what gRPC says of a connection or a stream that broke.
        case grpc.StatusCode.CANCELLED | grpc.StatusCode.ABORTED | grpc.StatusCode.INTERNAL:
            return ServiceUnavailable(
                service=target, why=f"the call broke off, or no Tandem is there ({why})"
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return error_of_exhausted(target, why)
        case grpc.StatusCode.UNAUTHENTICATED:
            return Unauthenticated(why=f"what stands before {target} says: {why}")
        case grpc.StatusCode.PERMISSION_DENIED:
            return PermissionDenied(
                caller="the caller", what=f"pass what stands before {target}: {why}"
            )
        case _:
            return ServerUnknown(target=target, why=f"it said {code.name}: {why}")


def checked_answer(answer: _Answer | None, target: str) -> _Answer:
    """Returns the answer; raises ServerUnknown where gRPC gave none, for it could not be read."""
    if answer is None:
        raise ServerUnknown(target=target, why="its answer is no message of tandem.v1")
    return answer


def check_answered(is_answered: bool, target: str) -> None:
    """Raises ServerUnknown if a stream that ended well had no final answer."""
    if not is_answered:
        raise ServerUnknown(target=target, why="it ended a stream without an answer")


def _text_metadata(metadata: object) -> Mapping[str, str]:
    pairs = metadata if metadata is not None else ()
    return {key: value for key, value in pairs if isinstance(value, str)}  # type: ignore[attr-defined]
