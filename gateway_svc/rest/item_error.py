"""Names the error of one element of a batch."""

from __future__ import annotations

from tandem.errors import TandemError, error_from_reason
from tandem.v1 import error_reason_pb2

_PREFIX = "ERROR_REASON_"


def item_error(message: error_reason_pb2.ItemError, where: str = "") -> TandemError:
    """Returns the error with its sender's message, after the place where it is."""
    try:
        reason = error_reason_pb2.ErrorReason.Name(message.reason).removeprefix(_PREFIX)
    except ValueError:  # Of a later version.
        reason = str(message.reason)
    return error_from_reason(
        reason, f"{where}: {message.message}" if where else message.message, {}
    )
