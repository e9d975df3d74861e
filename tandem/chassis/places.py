"""Shares a limited number of places among callers, so that no caller can take all."""

from __future__ import annotations

import contextvars
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import grpc

from tandem.chassis.guard import current_caller
from tandem.chassis.headers import current_headers

CALLER_KEY = "x-tandem-caller"
"""The header by which a service tells another for whom it calls."""

_asking: contextvars.ContextVar[str] = contextvars.ContextVar("tandem_asking", default="")


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


def bind_asking_caller(context: grpc.aio.ServicerContext, *, is_internal: bool) -> None:
    """Sets for whom the current task works; a service is believed for whom it calls."""
    sent = current_headers().get(CALLER_KEY) if is_internal else None
    _asking.set(_digest(sent if isinstance(sent, str) else caller_key(context)))


def asking_caller() -> str:
    """Returns a digest that names for whom the current task works; "" outside of a call."""
    return _asking.get()


@lru_cache(1024)
def _digest(caller: str) -> str:
    # In ASCII, as headers are, of any name; a digest that a service sent gets one of its own.
    return hashlib.blake2b(caller.encode(), digest_size=16).hexdigest()


def caller_key(context: grpc.aio.ServicerContext) -> str:
    """Returns the caller of a call: the token's name, or without tokens the host."""
    caller = current_caller()
    if caller is not None:
        return f"token {caller.grant.name}"
    return peer_host(context)


def peer_host(context: grpc.aio.ServicerContext) -> str:
    """Returns the peer's address without its port, which differs by connection."""
    return str(context.peer() or "").rpartition(":")[0]
