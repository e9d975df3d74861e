"""Whether enough of the services behind say that they are serving."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.channels import call
from tandem.chassis.log import get_logger
from tandem.errors import ServiceUnavailable, TandemError

log = get_logger()

_TIMEOUT_SECONDS = 2.0


class Dependencies:
    """The services behind, as a start sees them: all of them at first, then those that are needed.

    Needed are the encoder, for without it hardly a search can be answered, and one index_svc. The
    others' items are missing, and each answer says so or is refused by name where they are too many
    (the minimum coverage is of items, which nobody knows of a shard that is down): an orchestrator
    that is restarted is worth no less than one that ran before. rerank_svc is never needed either.
    Once it serves, it goes on serving whatever fails behind it: what it answers says in what it is
    less, and taking it away would make it nothing.
    """

    def __init__(
        self,
        encoder: grpc.aio.Channel,
        indexes: Sequence[grpc.aio.Channel],
        rerankers: Sequence[grpc.aio.Channel],
        *,
        wait_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """For `wait_seconds` from the first check on, nothing less than all of them will do."""
        self._channels = {
            "encoder": encoder,
            **{f"index-{number}": channel for number, channel in enumerate(indexes)},
            **{f"rerank-{number}": channel for number, channel in enumerate(rerankers)},
        }
        self._index_count = len(indexes)
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._first_time: float | None = None

    async def check(self) -> None:
        """Returns where they are enough by now; raises ServiceUnavailable, naming one, else."""
        now = self._clock()
        if self._first_time is None:
            self._first_time = now
        failures = await self._failures()
        if not failures:
            return
        is_waiting = now - self._first_time < self._wait_seconds
        if is_waiting or not self._are_enough_without(failures):
            raise next(iter(failures.values()))
        log.warning(
            "serving without", missing={name: error.message for name, error in failures.items()}
        )

    def _are_enough_without(self, failures: Mapping[str, TandemError]) -> bool:
        missing_count = sum(name.startswith("index-") for name in failures)
        return "encoder" not in failures and missing_count < self._index_count

    async def _failures(self) -> Mapping[str, TandemError]:
        """Returns why services are not serving, by name; the needed ones first."""
        found = await asyncio.gather(*(_check(*entry) for entry in self._channels.items()))
        return {name: error for name, error in zip(self._channels, found, strict=True) if error}


async def _check(name: str, channel: grpc.aio.Channel) -> TandemError | None:
    try:
        response: health_pb2.HealthCheckResponse = await call(
            health_pb2_grpc.HealthStub(channel).Check,
            health_pb2.HealthCheckRequest(),
            service=name,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
    except TandemError as error:
        return error
    if response.status != health_pb2.HealthCheckResponse.SERVING:
        return ServiceUnavailable(service=name, why="it is not serving yet")
    return None
