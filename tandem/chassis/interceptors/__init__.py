"""Interceptors that run around every call, in a fixed order.

Health and reflection calls skip them: probes are not traffic, and must answer under overload.

- `handlers`, `around`, `chain`: bases of an interceptor, and all of them as one
- `headers`, `request_id`, `trace`: what a call carries
- `access_log`, `metrics`, `outcome`: how a call ended
- `errors`, `release`: exceptions to statuses, and the memory of refused calls
- `auth`, `peer`: who may call, and who does
- `reading`, `request_scanner`: requests within their limits
- `probe_calls`, `slow_messages`: what strangers may hold by health and reflection calls
- `admission`, `stream_watch`: capacity of calls and streams
- `answers`, `ended_call`: answers whose caller does not read
"""

from __future__ import annotations

from tandem.chassis.access.guard import Guard
from tandem.chassis.capacity.admission import Admission, AdmissionLimits
from tandem.chassis.interceptors.access_log import AccessLogInterceptor
from tandem.chassis.interceptors.admission import AdmissionInterceptor
from tandem.chassis.interceptors.answers import AnswersInterceptor
from tandem.chassis.interceptors.auth import AuthInterceptor, MessageAuthInterceptor
from tandem.chassis.interceptors.errors import ErrorsInterceptor
from tandem.chassis.interceptors.handlers import HandlerInterceptor
from tandem.chassis.interceptors.headers import HeadersInterceptor
from tandem.chassis.interceptors.metrics import MetricsInterceptor
from tandem.chassis.interceptors.probe_calls import ProbeCalls
from tandem.chassis.interceptors.reading import ReadingInterceptor
from tandem.chassis.interceptors.release import ReleaseInterceptor
from tandem.chassis.interceptors.request_id import RequestIdInterceptor
from tandem.chassis.interceptors.trace import TraceInterceptor


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
