"""Answers the calls of the fake, or fails them as a test asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import grpc

from tandem.errors import TandemError
from tandem.v1 import error_reason_pb2

_Answer = TypeVar("_Answer")


class FakeCalls:
    """Holds the failures of the next calls, of all services of one fake."""

    def __init__(self) -> None:
        self.failures: deque[TandemError] = deque()

    def answered(self, context: grpc.ServicerContext, answer: Callable[[], _Answer]) -> _Answer:
        """Returns the answer, or ends the call with its error as Tandem's services do."""
        try:
            if self.failures:
                raise self.failures.popleft()
            return answer()
        except TandemError as error:
            context.set_trailing_metadata((("tandem-reason", error.reason),))
            context.abort(grpc.StatusCode[error.status], error.message)
            raise AssertionError("context.abort returned") from error


def error_message(error: TandemError) -> error_reason_pb2.ItemError:
    """Returns the message of one item's error."""
    name = f"ERROR_REASON_{error.reason}"
    return error_reason_pb2.ItemError(reason=name, message=error.message)
