"""Sets the request id, and returns it to the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.access.headers import current_headers
from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.telemetry.request_id import REQUEST_ID_KEY, bind_request_id


class RequestIdInterceptor(AroundInterceptor):
    """Takes `x-request-id` from the caller or generates one; returns it in trailing metadata."""

    @contextmanager
    def around(self, method: str, context: grpc.aio.ServicerContext) -> Iterator[None]:
        """Sets the id of the call's task."""
        offered = current_headers().get(REQUEST_ID_KEY)
        context.set_trailing_metadata(((REQUEST_ID_KEY, bind_request_id(offered)),))
        yield
