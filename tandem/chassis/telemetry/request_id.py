"""Carries the id that names one request in every service's log and metadata."""

import contextvars
import re
import uuid

REQUEST_ID_KEY = "x-request-id"

# Callers choose it, and it goes into logs and metadata, so it must be short and plain.
_ACCEPTED = re.compile(r"[A-Za-z0-9._:-]{1,128}")

_current: contextvars.ContextVar[str] = contextvars.ContextVar("tandem_request_id", default="")


def current_request_id() -> str:
    """Returns the id of the current request; "" outside of one."""
    return _current.get()


def bind_request_id(offered: str | bytes | None) -> str:
    """Sets the id of the current task's request: the caller's if it is acceptable, or a new one.

    Nothing resets it, because gRPC runs every call in a task, and so a context, of its own.
    """
    accepted = isinstance(offered, str) and _ACCEPTED.fullmatch(offered) is not None
    request_id = offered if isinstance(offered, str) and accepted else uuid.uuid4().hex
    _current.set(request_id)
    return request_id
