"""Serves the public API from one process, for `tandem up --one-process`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from embedded.hosted_gateway import hosted_gateway
from embedded.model_folder import ModelFolder
from embedded.services import InProcessServices, orchestrator_settings
from orchestrator_svc.assembly import SERVICE_NAMES, make_servicers
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.server import AttachedServer, serve
from tandem.chassis.serve.service import ServiceRoom
from tandem.chassis.settings import load
from tandem.chassis.telemetry.log import configure, load_log_level_or_exit
from tandem.chassis.tls import Identity, load_identity_or_exit
from tandem.repository.manifest import Manifest


def serve_from_one_process(
    shard_folders: Sequence[Path],
    repository: Path,
    manifest: Manifest,
    variables: Mapping[str, str],
    *,
    caches: bool,
    when_ready: Callable[[], None],
    when_stopping: Callable[[], None],
) -> None:
    """Serves until SIGTERM or SIGINT; calls `when_ready` once the model is loaded.

    `when_stopping` is called in a thread before the server drains.

    `variables` are ORCHESTRATOR_… settings, its address among them, and GATEWAY_… settings, which
    serve HTTP too if the orchestrator's address is in-process. Raises as InProcessServices and
    SettingsError.
    """
    # Shards say what they load, before `serve` prepares the process.
    configure("orchestrator", level=load_log_level_or_exit())
    settings = _settings(len(shard_folders), variables)
    identity = load_identity_or_exit()
    gateway = hosted_gateway(variables, identity)
    services = InProcessServices(
        lambda: ModelFolder(repository, manifest),
        shard_folders,
        caches=caches,
        orchestrator=settings,
    )
    asyncio.run(_serve(settings, services, when_ready, when_stopping, identity, gateway))


async def _serve(
    settings: OrchestratorSettings,
    services: InProcessServices,
    when_ready: Callable[[], None],
    when_stopping: Callable[[], None],
    identity: Identity | None,
    gateway: AttachedServer | None,
) -> None:
    async def warm() -> None:
        await services.start()
        await asyncio.to_thread(services.runner.wait_until_loaded)
        when_ready()

    async def stop() -> None:
        await asyncio.to_thread(when_stopping)

    async def close() -> None:
        await asyncio.to_thread(services.close)

    await serve(
        settings,
        ServiceRoom(
            name="orchestrator",
            register=make_servicers(services.settings, services.orchestrator).register,
            service_names=SERVICE_NAMES,
            warm=warm,
            close=close,
        ),
        identity=identity,
        guard=load_guard_or_exit(identity),
        attached=gateway,
        before_drain=stop,
    )


def _settings(shard_count: int, variables: Mapping[str, str]) -> OrchestratorSettings:
    here = orchestrator_settings(shard_count)
    wired = {
        "ORCHESTRATOR_ENCODER_ADDRESS": here.encoder_address,
        "ORCHESTRATOR_INDEX_ADDRESSES": ",".join(here.index_addresses),
        "ORCHESTRATOR_RERANK_ADDRESSES": ",".join(here.rerank_addresses),
    }
    return load(OrchestratorSettings, "ORCHESTRATOR_", {**variables, **wired})
