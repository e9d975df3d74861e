"""Runs encoder_svc and rerank_svc in the orchestrator's process, which calls them directly."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import grpc

from embedded.hosted_server import HostedServer
from embedded.local_server import LocalChannel
from encoder_svc.assembly import encoder_room
from encoder_svc.settings import EncoderSettings
from orchestrator_svc.settings import IN_PROCESS, OrchestratorSettings
from rerank_svc.assembly import rerank_room
from rerank_svc.settings import RerankSettings
from tandem.chassis.channels import open_channel
from tandem.chassis.health import Health
from tandem.chassis.metrics import SERVING, note_build
from tandem.chassis.service_room import ServiceRoom
from tandem.chassis.settings import SettingsError, load
from tandem.chassis.tls import Identity

SHARD_FIELD = "{shard}"
"""Stands for the shard's number in RERANK_STORE_PATH, which is one variable for all shards here."""


class HostedRooms:
    """Holds the rooms of this process, with a health of each."""

    def __init__(self, identity: Identity | None) -> None:
        self._identity = identity
        self._channels: dict[str, LocalChannel] = {}
        self._watches: list[asyncio.Task[None]] = []
        self._serving: dict[str, dict[str, bool]] = {}

    def connect(self, name: str, address: str) -> grpc.aio.Channel | LocalChannel:
        """Returns the channel to a service: that of the room here, or one to the address."""
        return self._channels.get(name) or open_channel(address, self._identity)

    def add(self, name: str, room: ServiceRoom) -> Health:
        """Makes a room callable as `name`, and watches its canary from the next turn on."""
        server = HostedServer(room.name)
        health = Health(room.name, room.service_names, self._note(room.name, name))
        health.register(server)
        room.register(server)
        note_build(room.name)
        self._channels[name] = LocalChannel(server)
        watch = asyncio.create_task(health.watch(room.warm, room.ready))
        watch.add_done_callback(self._watch_ended)
        self._watches.append(watch)
        return health

    async def end_watches(self) -> None:
        """Ends the canaries; raises what made a room unable to start, such as StoreRefused."""
        for watch in self._watches:
            watch.cancel()
        ends = await asyncio.gather(*self._watches, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _watch_ended(self, watch: asyncio.Task[None]) -> None:
        """Stops the process if a room cannot start, as its own process would end."""
        if not watch.cancelled() and watch.exception() is not None:
            signal.raise_signal(signal.SIGTERM)

    def _note(self, service: str, name: str) -> Callable[[bool], object]:
        """Returns what sets `tandem_serving` of a service: 1 if all of its rooms are serving."""
        serving = self._serving.setdefault(service, {})

        def note(is_serving: bool) -> None:
            serving[name] = is_serving
            SERVING.labels(service).set(all(serving.values()))

        return note


@asynccontextmanager
async def hosted_rooms(
    settings: OrchestratorSettings, identity: Identity | None, environ: Mapping[str, str]
) -> AsyncIterator[HostedRooms]:
    """Yields the rooms whose addresses are IN_PROCESS.

    Raises SettingsError for invalid ENCODER_… and RERANK_… variables, and for an index_svc that is
    IN_PROCESS: its metrics and its administration are those of one shard of one process.
    """
    if IN_PROCESS in settings.index_addresses:
        raise SettingsError(
            f"ORCHESTRATOR_INDEX_ADDRESSES: index_svc is not run {IN_PROCESS}; give its host:port"
        )
    rooms = HostedRooms(identity)
    async with AsyncExitStack() as opened:
        if settings.encoder_address == IN_PROCESS:
            await _open(rooms, "encoder", encoder_room(_encoder(environ), identity), opened)
        for number, address in enumerate(settings.rerank_addresses):
            if address == IN_PROCESS:
                shard = _rerank(environ, number, len(settings.rerank_addresses))
                await _open(rooms, f"rerank-{number}", rerank_room(shard, identity), opened)
        opened.push_async_callback(rooms.end_watches)
        yield rooms


async def _open(
    rooms: HostedRooms,
    name: str,
    opening: AbstractAsyncContextManager[ServiceRoom],
    opened: AsyncExitStack,
) -> None:
    room = await opened.enter_async_context(opening)
    opened.push_async_callback(room.close)
    opened.callback(rooms.add(name, room).leave)


def _encoder(environ: Mapping[str, str]) -> EncoderSettings:
    return load(EncoderSettings, "ENCODER_", environ)


def _rerank(environ: Mapping[str, str], number: int, count: int) -> RerankSettings:
    path = environ.get("RERANK_STORE_PATH", "")
    if count > 1 and SHARD_FIELD not in path:
        raise SettingsError(
            f"RERANK_STORE_PATH: {SHARD_FIELD} must stand for the shard's number in it, as "
            f"{count} shards are {IN_PROCESS}"
        )
    own = {
        "RERANK_STORE_PATH": path.replace(SHARD_FIELD, str(number)),
        "RERANK_SHARD_NUMBER": str(number),
        "RERANK_SHARD_COUNT": str(count),
    }
    return load(RerankSettings, "RERANK_", {**environ, **own})
