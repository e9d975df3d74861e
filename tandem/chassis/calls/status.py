"""Converts named errors to gRPC statuses and back."""

from typing import NoReturn

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from tandem.chassis.telemetry.request_id import REQUEST_ID_KEY, current_request_id
from tandem.errors import (
    DeadlineExceeded,
    InternalFault,
    Overloaded,
    QuotaExceeded,
    ServiceUnavailable,
    TandemError,
    error_from_reason,
    error_of_exhausted,
)

ERROR_DOMAIN = "tandem"
REASON_KEY = "tandem-reason"

_DETAILS_KEY = "grpc-status-details-bin"
# Clients in any language that retry by gRPC's service config honour it (gRFC A6).
_PUSHBACK_KEY = "grpc-retry-pushback-ms"
_NO_RETRY = "-1"

# gRPC limits all metadata to 8 KiB, and the message is in it twice.
_MAX_TEXT_CHARACTERS = 512


async def abort(context: grpc.aio.ServicerContext, error: TandemError) -> NoReturn:
    """Ends the call with `error`: its status code, message and trailing metadata.

    The metadata holds a google.rpc.Status with ErrorInfo (and RetryInfo for a retry delay), the
    bare reason and delay for callers without google.rpc, and the request id.
    """
    code = grpc.StatusCode[error.status]
    message = _plain(error.message)
    metadata = (
        (_DETAILS_KEY, rich_status(error).SerializeToString()),
        (REQUEST_ID_KEY, current_request_id()),
        *plain_metadata(error),
    )
    await context.abort(code, message, metadata)
    raise AssertionError("context.abort returned")


def plain_metadata(error: TandemError) -> tuple[tuple[str, str], ...]:
    """Returns what callers without google.rpc read of an error: its reason, and its delay."""
    return ((REASON_KEY, error.reason), *_pushback(error))


def error_from_rpc(rpc_error: grpc.aio.AioRpcError, service: str) -> TandemError:
    """Returns the named error of a failed call to `service`, with the service's message."""
    metadata = dict(rpc_error.trailing_metadata() or ())
    details = rpc_error.details() or "no details"
    if reason := metadata.get(REASON_KEY):
        return error_from_reason(reason, details, _error_metadata(metadata.get(_DETAILS_KEY, b"")))
    match rpc_error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return ServiceUnavailable(service=service, why=details)
        # Only a deadline cancels a call while its caller still waits.
        case grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
            return DeadlineExceeded(what=f"a call to {service}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return error_of_exhausted(service, details)
        case code:
            return InternalFault(why=f"{service} answered {code.name}: {details}")


def rich_status(error: TandemError) -> status_pb2.Status:
    """Returns the google.rpc.Status of `error`, with ErrorInfo and RetryInfo."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason,
        domain=ERROR_DOMAIN,
        metadata={key: _plain(value) for key, value in error.metadata.items()},
    )
    status = status_pb2.Status(
        code=grpc.StatusCode[error.status].value[0],
        message=_plain(error.message),
        details=[_packed(info)],
    )
    if isinstance(error, Overloaded | QuotaExceeded):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_delay_seconds * 1e9))
        status.details.append(_packed(retry))
    return status


def _pushback(error: TandemError) -> tuple[tuple[str, str], ...]:
    if not isinstance(error, Overloaded | QuotaExceeded):
        return ()
    if isinstance(error, QuotaExceeded) and error.is_final:
        return ((_PUSHBACK_KEY, _NO_RETRY),)
    return ((_PUSHBACK_KEY, str(round(error.retry_delay_seconds * 1000))),)


def _packed(detail: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _error_metadata(status_bytes: bytes) -> dict[str, str]:
    try:
        status = status_pb2.Status.FromString(status_bytes)
    except DecodeError:
        # The reason and the message do not depend on it.
        return {}
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info):
            return dict(info.metadata)
    return {}


def _plain(text: str) -> str:
    # Lone surrogates, for example from a file name, cannot be encoded.
    return text.encode("utf-8", "replace").decode()[:_MAX_TEXT_CHARACTERS]
