"""A service of ours with nothing that watches it: python benchmarks/unwatched.py encoder_svc.

No access log, no spans, no trace ids, no metrics: for `bench_watching.py`, which asks what they
cost. The program is the same otherwise; what is left out is replaced before it is imported.
"""

from __future__ import annotations

import os
import runpy
import sys
from contextlib import nullcontext
from typing import Any

import grpc
from prometheus_client import Counter, Gauge, Histogram, Info
from prometheus_client.metrics import MetricWrapperBase

from tandem.chassis import server
from tandem.chassis.admission import AdmissionLimits
from tandem.chassis.guard import Guard
from tandem.chassis.interceptors.admission import AdmissionInterceptor
from tandem.chassis.interceptors.auth import AuthInterceptor
from tandem.chassis.interceptors.errors import ErrorsInterceptor
from tandem.chassis.interceptors.reading import ReadingInterceptor
from tandem.chassis.interceptors.request_id import RequestIdInterceptor


class _Nothing:
    """A metric that counts nothing."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any method of any metric)
        return _do_nothing

    def time(self) -> nullcontext[None]:
        """As a histogram's, without a clock."""
        return nullcontext()


def _do_nothing(*arguments: object, **options: object) -> None:
    pass


def interceptors(
    service: str, limits: AdmissionLimits, guard: Guard | None = None
) -> tuple[grpc.aio.ServerInterceptor, ...]:
    """Returns those that a service cannot do without."""
    return (
        RequestIdInterceptor(),
        ErrorsInterceptor(),
        AuthInterceptor(guard or Guard()),
        ReadingInterceptor(limits),
        AdmissionInterceptor(service, limits),
    )


def leave_out() -> None:
    """Replaces what watches."""
    nothing = _Nothing()
    for kind, names in {
        Counter: ("inc",),
        Gauge: ("inc", "dec", "set"),
        Histogram: ("observe",),
        Info: ("info",),
    }.items():
        for name in names:
            setattr(kind, name, _do_nothing)
    MetricWrapperBase.labels = lambda *_, **__: nothing  # type: ignore[assignment,method-assign]
    server.interceptors = interceptors  # type: ignore[attr-defined]
    os.environ["LOG_LEVEL"] = "error"


if __name__ == "__main__":
    leave_out()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
