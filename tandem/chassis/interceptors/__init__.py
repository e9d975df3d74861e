"""What happens around every call, in a stated order.

Health and reflection pass by all of it: probes are not traffic, and must answer under overload.
"""

from __future__ import annotations

from tandem.chassis.admission import AdmissionLimits
from tandem.chassis.interceptors.access_log import AccessLogInterceptor
from tandem.chassis.interceptors.admission import AdmissionInterceptor
from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.interceptors.errors import ErrorsInterceptor
from tandem.chassis.interceptors.metrics import MetricsInterceptor
from tandem.chassis.interceptors.request_id import RequestIdInterceptor


def interceptors(service: str, limits: AdmissionLimits) -> tuple[AroundInterceptor, ...]:
    """Returns the interceptors of a service, outermost first."""
    return (
        RequestIdInterceptor(),  # so that every line below can name the request
        AccessLogInterceptor(),
        MetricsInterceptor(service),  # outside admission, to count what that refuses
        ErrorsInterceptor(),
        AdmissionInterceptor(service, limits),  # next to the handler: refuses and parses for it
    )
