"""Stands for a shard whose store is damaged: rejects every call with SERVICE_UNAVAILABLE."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from index_svc.settings import IndexSettings
from tandem.chassis.telemetry.log import get_logger
from tandem.errors import ServiceUnavailable
from tandem.local.shard.metrics import SHARD_CORRUPT

log = get_logger()

_LOGGED_COUNT = 5


class CorruptShard:
    """Refuses every call of a shard; its service's health stays NOT_SERVING.

    TLS and tokens apply as for a sound shard, so unauthorised callers learn nothing. The process
    stays up, so that callers get the reason and no supervisor restarts it in vain.
    """

    def __init__(self, settings: IndexSettings, damage: Sequence[str]) -> None:
        self._settings = settings
        self._damage = damage

    async def warm(self) -> None:
        """Reports the damage, and never returns."""
        path = self._settings.store_path
        SHARD_CORRUPT.labels(str(self._settings.shard_number)).set(1)
        log.critical("shard corrupt", store_path=path, damage=list(self._damage[:_LOGGED_COUNT]))
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Has nothing to close."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[NoReturn]]:
        return self._refuse

    async def _refuse(self, *_: object) -> NoReturn:
        raise ServiceUnavailable(
            service="index",
            why=f"shard corrupt: restore {self._settings.store_path} from a backup",
        )
