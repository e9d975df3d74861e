"""Stands for a shard whose store is damaged: rejects every call with SERVICE_UNAVAILABLE."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, cast

import grpc

from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from tandem.chassis.serve.service import Service
from tandem.chassis.telemetry.log import get_logger
from tandem.errors import ServiceUnavailable
from tandem.local.shard.metrics import SHARD_CORRUPT
from tandem.stages.shard import Shard
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import add_IndexServiceServicer_to_server

log = get_logger()

_LOGGED_COUNT = 5


def corrupt_service(settings: IndexSettings, damage: Sequence[str]) -> Service:
    """Returns a service that refuses every call; its health stays NOT_SERVING.

    TLS and tokens apply as for a sound shard, so unauthorised callers learn nothing. The process
    stays up, so that callers get the reason and no supervisor restarts it in vain.
    """
    stage = cast(Shard, _CorruptShard(settings.store_path))

    def register(server: grpc.aio.Server) -> None:
        add_IndexServiceServicer_to_server(IndexServicer(stage), server)

    async def warm() -> None:
        SHARD_CORRUPT.labels(str(settings.shard_number)).set(1)
        log.critical(
            "shard corrupt", store_path=settings.store_path, damage=list(damage[:_LOGGED_COUNT])
        )
        await asyncio.Event().wait()

    async def close() -> None:
        pass

    return Service(
        name="index",
        register=register,
        service_names=[pb.DESCRIPTOR.services_by_name["IndexService"].full_name],
        warm=warm,
        ready=warm,
        close=close,
        stage=stage,
    )


class _CorruptShard:
    """Refuses every call."""

    def __init__(self, store_path: str) -> None:
        self._store_path = store_path

    def __getattr__(self, name: str) -> Callable[..., Awaitable[NoReturn]]:
        return self._refuse

    async def _refuse(self, *_: object) -> NoReturn:
        raise ServiceUnavailable(
            service="index",
            why=f"shard corrupt: restore {self._store_path} from a backup",
        )
