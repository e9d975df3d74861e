"""Reads the deadlines of calls."""

from dataclasses import dataclass

import grpc

from tandem.contract.deadline import Deadline


@dataclass(frozen=True, slots=True)
class CallDeadline:
    """Gives each call the time that its caller waits, a default without one, at most a limit."""

    default_seconds: float
    max_seconds: float

    def of_call(self, context: grpc.aio.ServicerContext) -> Deadline:
        """Returns the deadline of a write or a description, which has no limit."""
        return Deadline.of_call(context, default_seconds=self.default_seconds)

    def of_search(self, context: grpc.aio.ServicerContext) -> Deadline:
        """Returns the deadline of a search."""
        return Deadline.of_call(
            context, default_seconds=self.default_seconds, max_seconds=self.max_seconds
        )
