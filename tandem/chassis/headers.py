"""A call's headers, which gRPC decodes anew for whoever asks: read once, and asked for here."""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Mapping

from tandem.errors import RequestMalformed, TandemError, Unauthenticated

AUTHORIZATION_KEY = "authorization"

_current: contextvars.ContextVar[Mapping[str, str | bytes]] = contextvars.ContextVar(
    "tandem_headers"
)


def bind_headers(metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
    """Notes the headers of the current task's call. gRPC runs every call in a task of its own."""
    _current.set(dict(metadata or ()))


def current_headers() -> Mapping[str, str | bytes]:
    """Returns the headers of the call being served; none outside of any."""
    return _current.get({})


def fault_of_headers() -> TandemError | None:
    """Returns why the call cannot be served: a header that is not ASCII, as gRPC's have to be.

    Without the header and its name: both are the caller's own words.
    """
    for key, value in current_headers().items():
        if isinstance(value, str) and not value.isascii():
            if key == AUTHORIZATION_KEY:
                return Unauthenticated(why="its authorization has characters that no token has")
            return RequestMalformed(why="a header has characters that are not ASCII")
    return None
