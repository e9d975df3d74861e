"""Describes what a service serves, and the settings that every service has."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from tandem.chassis.capacity.admission import AdmissionLimits
from tandem.chassis.health.health import Probe
from tandem.chassis.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Holds the servicers of one service, and how they start, answer a canary and close."""

    name: str
    register: Callable[[grpc.aio.Server], None]
    """Adds the servicers named by `service_names` to a server."""
    service_names: Sequence[str]
    """Full names, for reflection."""
    warm: Probe
    close: Callable[[], Awaitable[None]]
    ready: Probe | None = None
    stage: Any = None
    """What callers in the same process call without messages, if there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSettings:
    """Configures where a service listens, how much it admits, and how it stops.

    A service's settings inherit these, and redeclare those with another default.
    """

    address: str = setting("host:port to listen on")
    metrics_port: int = setting("port of /metrics, /live and /ready")
    max_inflight_count: int = setting("calls in flight; more are refused", default=64)
    max_inflight_bytes: int = setting(
        "bytes of requests in flight; more are refused", default=256 * 1024 * 1024
    )
    drain_notice_seconds: float = setting(
        "time between NOT_SERVING and refusing calls, for load balancers to notice", default=0.0
    )
    grace_seconds: float = setting("time for calls in flight to end at shutdown", default=5.0)

    def admission_limits(self) -> AdmissionLimits:
        """Returns how much the service admits at once."""
        return AdmissionLimits(
            max_inflight_count=self.max_inflight_count, max_inflight_bytes=self.max_inflight_bytes
        )
