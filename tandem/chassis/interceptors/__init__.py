"""Interceptors that run around every call, in a fixed order.

Health and reflection calls skip them: probes are not traffic, and must answer under overload.

- `handlers`: bases of an interceptor, and the chain of all
- `carried`: the request id and the trace of a call
- `observation`: metrics and one log line of a call
- `errors`: exceptions to statuses, and the memory of refused calls
- `auth`, `peer`: who may call, and who does
- `answers`: answers whose caller does not read
- `reading`: requests within their limits
- `probe_calls`, `slow_messages`: what strangers may hold by health and reflection calls
- `admission`: capacity of calls and streams
"""

from tandem.chassis.access.guard import Guard
from tandem.chassis.capacity.admission import Admission, AdmissionLimits
from tandem.chassis.interceptors.admission import AdmissionInterceptor
from tandem.chassis.interceptors.answers import AnswersInterceptor
from tandem.chassis.interceptors.auth import AuthInterceptor, MessageAuthInterceptor
from tandem.chassis.interceptors.carried import CarriedInterceptor
from tandem.chassis.interceptors.errors import ErrorsInterceptor, ReleaseInterceptor
from tandem.chassis.interceptors.handlers import HandlerInterceptor
from tandem.chassis.interceptors.observation import ObservationInterceptor
from tandem.chassis.interceptors.probe_calls import ProbeCalls
from tandem.chassis.interceptors.reading import ReadingInterceptor


def interceptors(
    service: str, limits: AdmissionLimits, guard: Guard | None = None
) -> tuple[HandlerInterceptor, ...]:
    """Returns the interceptors of a service, outermost first, for an `InterceptorChain`."""
    guard, admission = guard or Guard(), Admission(service, limits)
    probes = ProbeCalls(limits.max_probe_count)
    return (
        ReleaseInterceptor(),
        CarriedInterceptor(),  # so that every later log line has the request id
        ObservationInterceptor(service),  # outside admission, to count what it refuses
        ErrorsInterceptor(),
        AuthInterceptor(guard, probes),  # refuses strangers before reading anything of theirs
        AnswersInterceptor(admission),
        ReadingInterceptor(admission, probes),  # inside of it requests are messages, outside bytes
        MessageAuthInterceptor(guard),
        AdmissionInterceptor(admission),  # next to the handler
    )
