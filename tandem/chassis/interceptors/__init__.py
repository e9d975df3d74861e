"""Interceptors that run around every call, in a fixed order.

Health and reflection calls skip them: probes are not traffic, and must answer under overload.
"""

from __future__ import annotations

from tandem.chassis.admission import Admission, AdmissionLimits
from tandem.chassis.guard import Guard
from tandem.chassis.interceptors.access_log import AccessLogInterceptor
from tandem.chassis.interceptors.admission import AdmissionInterceptor
from tandem.chassis.interceptors.answers import AnswersInterceptor
from tandem.chassis.interceptors.auth import AuthInterceptor, MessageAuthInterceptor
from tandem.chassis.interceptors.errors import ErrorsInterceptor
from tandem.chassis.interceptors.handlers import HandlerInterceptor
from tandem.chassis.interceptors.headers import HeadersInterceptor
from tandem.chassis.interceptors.metrics import MetricsInterceptor
from tandem.chassis.interceptors.reading import ReadingInterceptor
from tandem.chassis.interceptors.release import ReleaseInterceptor
from tandem.chassis.interceptors.request_id import RequestIdInterceptor
from tandem.chassis.interceptors.trace import TraceInterceptor
from tandem.chassis.probe_calls import ProbeCalls


def interceptors(
    service: str, limits: AdmissionLimits, guard: Guard | None = None
) -> tuple[HandlerInterceptor, ...]:
    """Returns the interceptors of a service, outermost first, for an `InterceptorChain`."""
    guard, admission = guard or Guard(), Admission(service, limits)
    probes = ProbeCalls(limits.max_probe_count)
    return (
        ReleaseInterceptor(),
        RequestIdInterceptor(),  # so that every later log line has the request id
        TraceInterceptor(),
        AccessLogInterceptor(),
        MetricsInterceptor(service),  # outside admission, to count what it refuses
        ErrorsInterceptor(),
        HeadersInterceptor(),
        AuthInterceptor(guard, probes),  # refuses strangers before reading anything of theirs
        AnswersInterceptor(admission),
        ReadingInterceptor(admission, probes),  # inside of it requests are messages, outside bytes
        MessageAuthInterceptor(guard),
        AdmissionInterceptor(admission),  # next to the handler
    )
