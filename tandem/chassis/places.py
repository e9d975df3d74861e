"""Shares a limited number of places among callers, so that no caller can take all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.guard import current_caller


class Places:
    """Places with a total limit and a limit by caller. For one event loop."""

    def __init__(self, max_count: int, max_count_by_caller: int) -> None:
        self.max_count = max_count
        self.max_count_by_caller = max_count_by_caller
        self._taken: Counter[str] = Counter()
        self.count = 0

    def lack(self, caller: str) -> str:
        """Returns the limit that `caller` has reached; "" if there is a place."""
        if self.count >= self.max_count:
            return f"all {self.max_count} places are taken"
        if self._taken[caller] >= self.max_count_by_caller:
            return f"this caller has {self.max_count_by_caller} already"
        return ""

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Holds one place, even past the limit."""
        self.count += 1
        self._taken[caller] += 1
        try:
            yield
        finally:
            self.count -= 1
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


def caller_key(context: grpc.aio.ServicerContext) -> str:
    """Returns the caller of a call: the token's name, or without tokens the host."""
    caller = current_caller()
    if caller is not None:
        return f"token {caller.grant.name}"
    return peer_host(context)


def peer_host(context: grpc.aio.ServicerContext) -> str:
    """Returns the peer's address without its port, which differs by connection."""
    return str(context.peer() or "").rpartition(":")[0]
