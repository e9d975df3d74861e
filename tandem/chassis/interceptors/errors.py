"""Turns what a handler raises into the status its caller gets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.log import get_logger
from tandem.chassis.status import abort
from tandem.errors import InternalFault, TandemError

log = get_logger(__name__)


class ErrorsInterceptor(AroundInterceptor):
    """`TandemError` goes out by the table; anything else is our fault, logged, not shown."""

    @asynccontextmanager
    async def around(self, method: str, context: grpc.aio.ServicerContext) -> AsyncIterator[None]:
        """Aborts the call with what was raised; cancellation and aborts pass through."""
        try:
            yield
        except TandemError as error:
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception:
            # The one net under every handler. The message goes to strangers, so it says nothing.
            log.exception("internal fault", method=method)
            await abort(context, InternalFault(why=f"{method} failed"))
