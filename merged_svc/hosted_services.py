"""Runs other services in the orchestrator's process, which calls them directly."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from encoder_svc.assembly import encoder_service
from encoder_svc.settings import EncoderSettings
from index_svc.assembly import OpenedShard, index_service
from index_svc.settings import IndexSettings
from merged_svc.hosted_stage import hosted_stage
from merged_svc.operators_server import OperatorsServer
from orchestrator_svc.assembly import Hosted
from orchestrator_svc.settings import OrchestratorSettings, is_in_process
from rerank_svc.assembly import connected_model, rerank_service
from rerank_svc.settings import RerankSettings
from tandem.chassis.health.health import Health
from tandem.chassis.serve.service import Service
from tandem.chassis.settings import SettingsError, load
from tandem.chassis.telemetry.metrics import SERVING, note_build
from tandem.chassis.telemetry.model_metrics import note_shard
from tandem.chassis.tls import Identity
from tandem.errors import ServiceUnavailable, TandemError
from tandem.local.item_store.item_store import ItemStore
from tandem.model_io.inference.served_model import ServedModel

SHARD_FIELD = "{shard}"
"""Stands for the shard's number in STORE_PATH, which is one variable for all shards here."""


class HostedServices:
    """Holds the services of this process, with a health of each."""

    def __init__(self, identity: Identity | None, opened: AsyncExitStack) -> None:
        """Closes all services with `opened`."""
        self._identity = identity
        self._opened = opened
        self.hosted: dict[str, Hosted] = {}
        """The stages of the services, by the services' names."""
        self._starts: list[Callable[[], Awaitable[None]]] = []
        self._watches: list[asyncio.Task[None]] = []
        self._serving: dict[str, dict[str, bool]] = {}

    async def start(self) -> None:
        """Opens the operators' servers and begins the canaries; a second call does nothing."""
        starts, self._starts = self._starts, []
        for start in starts:
            await start()

    def add(self, name: str, service: Service) -> Health:
        """Makes a service callable as `name`."""
        health = Health(service.name, service.service_names, self._note(service.name, name))
        health.begin()
        note_build(service.name)
        check = partial(_check_serving, name, health)
        self.hosted[name] = Hosted(hosted_stage(service.stage, service.name), check)
        self._opened.push_async_callback(service.close)
        self._opened.callback(health.leave)
        self._starts.append(partial(self._watch, health, service))
        return health

    def add_shard(self, name: str, settings: IndexSettings, address: str) -> OpenedShard:
        """Opens a shard, callable as `name`, with a server for its operators at the address."""
        opened = index_service(settings)
        health = self.add(name, opened.service)
        note_shard(opened.service.name, settings.shard_number, settings.shard_count)
        server = OperatorsServer(opened.service, health, self._identity)
        self._starts.append(partial(server.open, address, settings.admission_limits()))
        self._opened.push_async_callback(partial(server.close, settings.grace_seconds))
        return opened

    async def end_watches(self) -> None:
        """Ends the canaries; raises what made a service unable to start, such as StoreRefused."""
        for watch in self._watches:
            watch.cancel()
        ends = await asyncio.gather(*self._watches, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _watch(self, health: Health, service: Service) -> None:
        watch = asyncio.create_task(health.watch(service.warm, service.ready))
        watch.add_done_callback(self._watch_ended)
        self._watches.append(watch)

    def _watch_ended(self, watch: asyncio.Task[None]) -> None:
        """Stops the process if a service cannot start, as its own process would end."""
        if not watch.cancelled() and watch.exception() is not None:
            signal.raise_signal(signal.SIGTERM)

    def _note(self, service: str, name: str) -> Callable[[bool], object]:
        """Returns what sets `tandem_serving` of a service: 1 if each of its shards is serving."""
        serving = self._serving.setdefault(service, {})

        def note(is_serving: bool) -> None:
            serving[name] = is_serving
            SERVING.labels(service).set(all(serving.values()))

        return note


@asynccontextmanager
async def hosted_services(
    settings: OrchestratorSettings, identity: Identity | None, environ: Mapping[str, str]
) -> AsyncIterator[HostedServices]:
    """Yields the services whose addresses are in-process.

    Raises SettingsError for invalid ENCODER_…, INDEX_… and RERANK_… variables, and StoreRefused.
    """
    async with AsyncExitStack() as opened:
        services = HostedServices(identity, opened)
        if is_in_process(settings.encoder_address):
            encoder = load(EncoderSettings, "ENCODER_", environ)
            services.add(
                "encoder", await opened.enter_async_context(encoder_service(encoder, identity))
            )
        shards: dict[int, OpenedShard] = {}
        count = len(settings.index_addresses)
        for number, address in enumerate(settings.index_addresses):
            if is_in_process(address):
                variables = _of_shard("INDEX_", environ, number, count)
                index = load(IndexSettings, "INDEX_", variables)
                _check_shard_map(index, settings)
                shards[number] = services.add_shard(
                    f"index-{number}", index, address.partition("@")[2]
                )
        model: ServedModel | None = None
        for number, address in enumerate(settings.rerank_addresses):
            if is_in_process(address):
                variables = _of_shard("RERANK_", environ, number, count)
                own = load(RerankSettings, "RERANK_", variables)
                if model is None and not own.remote_url:
                    model = await opened.enter_async_context(connected_model(own, identity))
                store = shards[number].store if number in shards else None
                shared = partial(_shared, store) if store is not None else None
                service = rerank_service(own, identity, shared, model)
                services.add(f"rerank-{number}", await opened.enter_async_context(service))
                note_shard("rerank", number, count)
        opened.push_async_callback(services.end_watches)
        yield services


def _check_shard_map(index: IndexSettings, settings: OrchestratorSettings) -> None:
    # A shard of another process refuses each call by another map.
    if index.shard_map_version != settings.shard_map_version:
        raise SettingsError(
            f"INDEX_SHARD_MAP_VERSION is {index.shard_map_version}, and "
            f"ORCHESTRATOR_SHARD_MAP_VERSION is {settings.shard_map_version}: set one for both"
        )


async def _check_serving(name: str, health: Health) -> TandemError | None:
    return None if health.is_serving() else ServiceUnavailable(service=name, why="not serving yet")


def _shared(store: ItemStore) -> ItemStore:
    return store


def _of_shard(
    prefix: str, environ: Mapping[str, str], number: int, count: int
) -> Mapping[str, str]:
    """Returns the variables of one shard's service."""
    path = environ.get(f"{prefix}STORE_PATH", "")
    if count > 1 and SHARD_FIELD not in path:
        raise SettingsError(
            f"{prefix}STORE_PATH: {SHARD_FIELD} must stand for the shard's number in it, as the "
            f"process has {count} shards"
        )
    return {
        **environ,
        f"{prefix}STORE_PATH": path.replace(SHARD_FIELD, str(number)),
        f"{prefix}SHARD_NUMBER": str(number),
        f"{prefix}SHARD_COUNT": str(count),
    }
