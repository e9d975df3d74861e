"""Knows whose call the current task serves, and for whom."""

import contextvars
import hashlib
from functools import lru_cache

from tandem.chassis.access.headers import current_headers
from tandem.chassis.access.tokens import Caller

CALLER_KEY = "x-tandem-caller"
"""The header by which a service tells another for whom it calls."""

_current: contextvars.ContextVar[Caller | None] = contextvars.ContextVar(
    "tandem_caller", default=None
)
_asking: contextvars.ContextVar[str] = contextvars.ContextVar("tandem_asking", default="")


def current_caller() -> Caller | None:
    """Returns the caller of the current call, or None if callers are not identified."""
    return _current.get()


def bind_caller(caller: Caller) -> None:
    """Sets the caller of the current task, in which gRPC runs one call."""
    _current.set(caller)


def caller_of(host: str) -> str:
    """Returns the caller of the current task: the token's name, or without tokens `host`."""
    caller = current_caller()
    return host if caller is None else f"token {caller.grant.name}"


def asking_caller() -> str:
    """Returns a digest that names for whom the current task works; "" outside of a call."""
    return _asking.get()


def bind_asking_caller(host: str, *, is_internal: bool) -> None:
    """Sets for whom the current task works; a service at `host` is believed for whom it calls."""
    sent = current_headers().get(CALLER_KEY) if is_internal else None
    _asking.set(_digest(sent if isinstance(sent, str) else caller_of(host)))


@lru_cache(1024)
def _digest(caller: str) -> str:
    # In ASCII, as headers are, of any name; a digest that a service sent gets one of its own.
    return hashlib.blake2b(caller.encode(), digest_size=16).hexdigest()
