"""Serves searches over the downstream services."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from orchestrator_svc.assembly import SERVICE_NAMES, Downstream, make_servicers
from orchestrator_svc.followed_shards import FollowedShards
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.server import AttachedServer, serve
from tandem.chassis.serve.service import Service
from tandem.chassis.tls import Identity
from tandem.contract.deadline import Deadline
from tandem.errors import TandemError
from tandem.remote.startup import Dependencies
from tandem.search.assembly import make_orchestrator


async def serve_searches(
    settings: OrchestratorSettings,
    identity: Identity | None,
    downstream: Downstream,
    begin: Callable[[], Awaitable[None]] | None = None,
    attached: AttachedServer | None = None,
    moved_from: tuple[int, int] | None = None,
) -> None:
    """Serves until a signal stops it, and closes the channels to downstream.

    `begin` is awaited once the process is prepared, before the services are called. `attached`
    calls the search service directly. `moved_from` is the shard map before, as ShardMap takes it.
    """
    orchestrator = make_orchestrator(
        settings, downstream.stages, moved_from=moved_from, next_stages=downstream.next_stages
    )
    servicers = make_servicers(settings, orchestrator)
    followed = FollowedShards(settings, identity, downstream)
    dependencies = Dependencies(downstream.checks, wait_seconds=settings.start_wait_seconds)

    async def warm() -> None:
        if begin is not None:
            await begin()
        await dependencies.check()
        with suppress(TandemError):  # The first call that names an index tries it again.
            await orchestrator.router.book.begin(Deadline.after(settings.default_timeout_seconds))
        if settings.generations_kept:
            orchestrator.keeper.begin()
        if settings.shard_map_file:
            followed.begin(servicers)

    async def close() -> None:
        await servicers.search.orchestrator.keeper.close()
        await servicers.search.orchestrator.router.book.close()
        await followed.close()

    await serve(
        settings,
        Service(
            name="orchestrator",
            register=servicers.register,
            service_names=SERVICE_NAMES,
            warm=warm,
            close=close,
        ),
        identity=identity,
        guard=load_guard_or_exit(identity),
        attached=attached,
    )
