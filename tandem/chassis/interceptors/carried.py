"""Takes up what a call carries from service to service: its request id and its trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.access.headers import current_headers
from tandem.chassis.interceptors.handlers import AroundInterceptor, Passed, method_of, nothing
from tandem.chassis.telemetry.request_id import REQUEST_ID_KEY, bind_request_id
from tandem.chassis.telemetry.tracing import TRACEPARENT_KEY, TRACESTATE_KEY, tracing


class CarriedInterceptor(AroundInterceptor):
    """Sets the request id and the trace context of a call's task, or makes new ones.

    The caller gets the id in trailing metadata. A sampled call gets a span.
    """

    @contextmanager
    def around(
        self, path: str, sent: object, context: grpc.aio.ServicerContext
    ) -> Iterator[Passed]:
        """Serves the call within its trace."""
        headers = current_headers()
        request_id = bind_request_id(headers.get(REQUEST_ID_KEY))
        context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))
        offered = {
            key: value
            for key in (TRACEPARENT_KEY, TRACESTATE_KEY)
            if isinstance(value := headers.get(key), str)
        }
        method = method_of(path)
        with tracing().serve(method, offered, {"rpc.system": "grpc", "rpc.method": method}):
            yield sent, nothing
