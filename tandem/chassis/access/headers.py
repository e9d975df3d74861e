"""Keeps the headers of the current call, which gRPC decodes again on each access."""

import contextvars
from collections.abc import Iterable, Mapping

from tandem.errors import RequestMalformed, TandemError, Unauthenticated

AUTHORIZATION_KEY = "authorization"

_current: contextvars.ContextVar[Mapping[str, str | bytes]] = contextvars.ContextVar(
    "tandem_headers"
)


def bind_headers(metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
    """Sets the headers of the current task, in which gRPC runs one call."""
    _current.set(dict(metadata or ()))


def current_headers() -> Mapping[str, str | bytes]:
    """Returns the headers of the current call; empty outside of one."""
    return _current.get({})


def fault_of_headers() -> TandemError | None:
    """Returns an error if a header is not ASCII, which gRPC requires.

    The error contains neither the header nor its name: both are the caller's text.
    """
    for key, value in current_headers().items():
        if isinstance(value, str) and not value.isascii():
            if key == AUTHORIZATION_KEY:
                return Unauthenticated(why="its authorization header is not ASCII")
            return RequestMalformed(why="a header is not ASCII")
    return None
