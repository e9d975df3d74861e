"""Names the request, and tells the caller the name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.headers import current_headers
from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.request_id import REQUEST_ID_KEY, bind_request_id


class RequestIdInterceptor(AroundInterceptor):
    """Takes `x-request-id` from the caller or makes one; returns it in trailing metadata."""

    @contextmanager
    def around(self, method: str, context: grpc.aio.ServicerContext) -> Iterator[None]:
        """Binds the id for the call's task."""
        offered = current_headers().get(REQUEST_ID_KEY)
        context.set_trailing_metadata(((REQUEST_ID_KEY, bind_request_id(offered)),))
        yield
