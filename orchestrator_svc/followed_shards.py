"""Follows the file that names the shards, and gives new calls to those that it names."""

import asyncio
from dataclasses import replace
from pathlib import Path

from orchestrator_svc.assembly import Downstream, Servicers, downstream
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.settings import SettingsError
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.tls import Identity
from tandem.platform.files.json_object import FileInvalid
from tandem.remote.move.move_files import MovedShards, read_move_file
from tandem.search.assembly import make_orchestrator

log = get_logger()

_POLL_SECONDS = 0.1


def shards_of_file(settings: OrchestratorSettings) -> MovedShards | None:
    """Returns the shards that the file names; None without a setting or a file.

    Raises SettingsError for an invalid file.
    """
    try:
        path = settings.shard_map_file
        return read_move_file(Path(path), MovedShards) if path else None
    except FileInvalid as error:
        raise SettingsError(f"ORCHESTRATOR_SHARD_MAP_FILE: {error}") from error


def settings_of(settings: OrchestratorSettings, moved: MovedShards) -> OrchestratorSettings:
    """Returns the settings with the shards of the file; raises SettingsError if they disagree."""
    return replace(
        settings,
        index_addresses=moved.index_addresses,
        rerank_addresses=moved.rerank_addresses,
        next_rerank_addresses=moved.next_rerank_addresses if settings.next_encoder_address else (),
        shard_map_version=moved.version,
    )


class FollowedShards:
    """Switches the servicers to a newer shard map once all its services serve."""

    def __init__(
        self, settings: OrchestratorSettings, identity: Identity | None, current: Downstream
    ) -> None:
        """Takes the services that are called now, by these settings."""
        self._settings = settings
        self._identity = identity
        self._current = current
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, servicers: Servicers) -> None:
        """Follows the file from now on."""
        self._tasks.append(asyncio.create_task(self._follow(servicers)))

    async def close(self) -> None:
        """Follows no longer, and closes the channels."""
        for task in self._tasks:
            task.cancel()
        await self._current.close()

    async def _follow(self, servicers: Servicers) -> None:
        """Looks at the file until cancelled; what it cannot use is logged once, and waited for."""
        fault = ""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                moved = shards_of_file(self._settings)
                if moved is None or moved.version <= self._settings.shard_map_version:
                    continue
                await self._switch(servicers, moved)
            except Exception as error:  # none may end it
                if str(error) != fault:
                    fault = str(error)
                    log.error("shard map refused", why=fault)

    async def _switch(self, servicers: Servicers, moved: MovedShards) -> None:
        settings = settings_of(self._settings, moved)
        fresh, old = downstream(settings, self._identity, {}), self._current
        try:
            checked = await asyncio.gather(*(check() for check in fresh.checks.values()))
            if failure := next(filter(None, checked), None):
                raise failure
        except BaseException:
            await fresh.close()
            raise
        self._settings, self._current = settings, fresh
        before = servicers.search.orchestrator
        servicers.switch(
            make_orchestrator(
                settings,
                fresh.stages,
                moved_from=moved.moved_from,
                next_stages=fresh.next_stages,
            )
        )
        await before.keeper.close()
        await before.router.book.close()
        if settings.generations_kept:
            servicers.search.orchestrator.keeper.begin()
        for shard in old.stages.shards:
            shard.is_left = True
        log.info("shards switched", version=moved.version, shard_count=len(fresh.stages.shards))
        # As long as a call may last that began before.
        seconds = max(settings.max_timeout_seconds, settings.ingest_batch_timeout_seconds)
        self._tasks.append(asyncio.create_task(_close_later(old, seconds)))


async def _close_later(old: Downstream, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await old.close()
