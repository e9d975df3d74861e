"""Lets a trace begin under an id that its caller chose. It is imported where spans are made."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

_chosen: contextvars.ContextVar[int | None] = contextvars.ContextVar(
    "tandem_chosen_trace", default=None
)


class ChosenTraceIds(RandomIdGenerator):
    """Gives a root span the chosen trace id, or a random one."""

    def generate_trace_id(self) -> int:
        """Returns the id; OpenTelemetry calls this only for spans without a parent."""
        return _chosen.get() or super().generate_trace_id()


@contextmanager
def chosen_trace_id(trace_id: str) -> Iterator[None]:
    """Gives a root span that starts in the body this id, in hexadecimal."""
    token = _chosen.set(int(trace_id, 16))
    try:
        yield
    finally:
        _chosen.reset(token)
