"""Describes what a service serves, whichever server it is added to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import grpc

from tandem.chassis.health.health import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRoom:
    """Holds the servicers of one service, and how they start, answer a canary and close."""

    name: str
    register: Callable[[grpc.aio.Server], None]
    """Adds the servicers named by `service_names` to a server."""
    service_names: Sequence[str]
    warm: Probe
    ready: Probe
    close: Callable[[], Awaitable[None]]
    servicer: object = None
    """The object that callers in the same process may call without messages, if there is one."""
