"""Counts the calls of a stage of this process as its own process would."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast

from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.telemetry.metrics import REFUSALS, RPC_DURATION, RPC_INFLIGHT, kept_series
from tandem.chassis.telemetry.tracing import exemplar, tracing
from tandem.errors import InternalFault, TandemError

log = get_logger()

T = TypeVar("T")

_RPC_OF = {
    "encode": "EncodeContents",
    "describe_model": "DescribeModel",
    "search": "SearchEmbeddings",
    "find_neighbours": "FindNeighbours",
    "get": "GetItems",
    "delete_index": "DeleteIndex",
    "list_item_ids": "ListItemIds",
    "describe_index": "DescribeShardIndex",
    "list_indexes": "ListShardIndexes",
    "score": "ScoreCandidates",
    "score_given": "ScoreTokens",
    "score_graph": "ScoreGraph",
}
"""The method that another process would call; a write is named after what it writes."""


def hosted_stage(stage: T, service: str) -> T:
    """Returns the stage, with each call counted and traced under the service's name.

    An exception that is no `TandemError` is logged and becomes InternalFault, so that it degrades a
    search, and does not end it. There is no admission, no token and no line in the access log: the
    orchestrator is the only caller, and admitted the call of which this is a part.
    """
    return cast(T, _HostedStage(stage, service))


class _HostedStage:
    def __init__(self, stage: object, service: str) -> None:
        self._stage = stage
        self._service = service
        self._inflight = RPC_INFLIGHT.labels(service)
        self._durations = kept_series(RPC_DURATION)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return partial(self._counted, name, getattr(self._stage, name))

    async def _counted(
        self,
        name: str,
        work: Callable[..., Awaitable[Any]],
        *given: Any,  # noqa: ANN401 (whatever the stage takes)
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        method = _RPC_OF.get(name) or f"{type(given[0]).__name__}Items"
        start_time = time.perf_counter()
        code = "OK"
        self._inflight.inc()
        try:
            with tracing().stage(method, {"rpc.method": method}):
                return await work(*given, **options)
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except TandemError as error:
            code = error.status
            REFUSALS.labels(self._service, method, error.reason).inc()
            raise
        except Exception as error:
            code = InternalFault.status
            log.error("internal fault", service=self._service, method=method, exc_info=error)
            raise InternalFault(why=f"{method} failed") from None
        finally:
            self._inflight.dec()
            seconds = time.perf_counter() - start_time
            self._durations(self._service, method, code).observe(seconds, exemplar())
