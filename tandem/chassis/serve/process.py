"""Prepares a service's process, and opens its metrics port, whatever protocol it serves."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from tandem.chassis.health.metrics_server import MetricsServer
from tandem.chassis.process.file_limit import allow_open_files, brief_when_scarce
from tandem.chassis.process.memory import bound_memory
from tandem.chassis.process.threads import (
    keep_blas_in_this_thread,
    started_threads,
    switch_threads_often,
)
from tandem.chassis.serve.service import ServiceSettings
from tandem.chassis.settings import exiting_on_faults, load, setting
from tandem.chassis.telemetry.log import (
    configure,
    get_logger,
    load_log_level_or_exit,
    log_stray_faults,
)
from tandem.chassis.telemetry.metrics import REGISTRY, note_build
from tandem.chassis.telemetry.tracing import Tracing, load_tracing_or_exit, use
from tandem.platform.files.private_files import keep_files_private

log = get_logger()

# Threads of asyncio.to_thread: asyncio's default on two cores.
_THREAD_COUNT = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionalServices:
    """Turns reflection and metrics on or off. Health and probes are always on."""

    reflection: bool = setting("whether gRPC reflection is on", default=True)
    metrics: bool = setting(
        "whether /metrics is on; the probes on its port always are",
        default=True,
    )


@dataclass(frozen=True, slots=True)
class Process:
    """A prepared process."""

    optional: OptionalServices
    tracing: Tracing
    stopping: asyncio.Event
    """Set by SIGTERM and SIGINT."""

    @property
    def registry(self) -> CollectorRegistry | None:
        """Returns the metrics to serve; None if they are turned off."""
        return REGISTRY if self.optional.metrics else None


def prepare(name: str) -> Process:
    """Prepares the process of the service `name`; needs a running event loop.

    Exits 2 with a message if a variable that every service reads is invalid.
    """
    # A fork of a process with gRPC threads deadlocks; our services do not fork.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    bound_memory()
    keep_blas_in_this_thread()
    allow_open_files()
    switch_threads_often()
    keep_files_private()
    configure(name, level=load_log_level_or_exit())
    log_stray_faults()
    with exiting_on_faults():
        optional = load(OptionalServices, "DOOR_", os.environ)
    use(traced := load_tracing_or_exit(name))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        brief_when_scarce("calls", asyncio.AbstractEventLoop.default_exception_handler)
    )
    loop.set_default_executor(started_threads(_THREAD_COUNT, "asyncio"))
    # asyncio.run's own handling of SIGTERM would end the process without a drain.
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return Process(optional, traced, stopping)


def open_metrics_port(
    name: str,
    settings: ServiceSettings,
    registry: CollectorRegistry | None,
    is_live: Callable[[], bool],
    is_ready: Callable[[], bool],
) -> MetricsServer:
    """Returns the server of metrics and probes; exits 1 if its port is not available."""
    host = host_of(settings.address)
    note_build(name)
    try:
        return MetricsServer(
            host, settings.metrics_port, registry, is_live=is_live, is_ready=is_ready
        )
    except OSError as error:
        log.error("cannot listen", address=f"{host}:{settings.metrics_port}", cause=str(error))
        raise SystemExit(1) from error


def host_of(address: str) -> str:
    """Returns the host of `host:port`, without brackets."""
    return address.rpartition(":")[0].strip("[]")
