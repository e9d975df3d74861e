"""What happens around every call, in a stated order.

Health and reflection pass by all of it: probes are not traffic, and must answer under overload.
"""

from __future__ import annotations

import grpc

from tandem.chassis.admission import AdmissionLimits
from tandem.chassis.guard import Guard
from tandem.chassis.interceptors.access_log import AccessLogInterceptor
from tandem.chassis.interceptors.admission import AdmissionInterceptor
from tandem.chassis.interceptors.answers import AnswersInterceptor
from tandem.chassis.interceptors.auth import AuthInterceptor, MessageAuthInterceptor
from tandem.chassis.interceptors.errors import ErrorsInterceptor
from tandem.chassis.interceptors.headers import HeadersInterceptor
from tandem.chassis.interceptors.metrics import MetricsInterceptor
from tandem.chassis.interceptors.reading import ReadingInterceptor
from tandem.chassis.interceptors.release import ReleaseInterceptor
from tandem.chassis.interceptors.request_id import RequestIdInterceptor
from tandem.chassis.interceptors.trace import TraceInterceptor


def interceptors(
    service: str, limits: AdmissionLimits, guard: Guard | None = None
) -> tuple[grpc.aio.ServerInterceptor, ...]:
    """Returns the interceptors of a service, outermost first."""
    guard = guard or Guard()
    return (
        ReleaseInterceptor(),
        RequestIdInterceptor(),  # so that every line below can name the request
        TraceInterceptor(),
        AccessLogInterceptor(),
        MetricsInterceptor(service),  # outside admission, to count what that refuses
        ErrorsInterceptor(),
        HeadersInterceptor(),
        AuthInterceptor(guard),  # strangers are told before anything of theirs is read
        AnswersInterceptor(service, limits),
        ReadingInterceptor(limits),  # within it requests are messages, around it bytes
        MessageAuthInterceptor(guard),
        AdmissionInterceptor(service, limits),  # next to the handler: refuses for it
    )
