"""Serves the public API from one process, for `tandem up --one-process`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from merged_svc.hosted_gateway import hosted_gateway
from orchestrator_svc.assembly import SERVICE_NAMES, make_servicers
from orchestrator_svc.settings import IN_PROCESS, OrchestratorSettings
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.server import AttachedServer, serve
from tandem.chassis.serve.service import Service
from tandem.chassis.settings import load
from tandem.chassis.telemetry.log import configure, load_log_level_or_exit
from tandem.chassis.tls import Identity, load_identity_or_exit
from tandem.engine.local_stages import LocalStages
from tandem.engine.model_folder import ModelFolder
from tandem.model_io.repository.manifest import Manifest


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
    serve HTTP too if the orchestrator's address is in-process. Raises as LocalStages and
    SettingsError.
    """
    # Shards say what they load, before `serve` prepares the process.
    configure("orchestrator", level=load_log_level_or_exit())
    settings = _settings(len(shard_folders), variables)
    identity = load_identity_or_exit()
    gateway = hosted_gateway(variables, identity)
    stages = LocalStages(
        lambda: ModelFolder(repository, manifest),
        shard_folders,
        caches=caches,
        settings=settings,
    )
    asyncio.run(_serve(settings, stages, when_ready, when_stopping, identity, gateway))


async def _serve(
    settings: OrchestratorSettings,
    stages: LocalStages,
    when_ready: Callable[[], None],
    when_stopping: Callable[[], None],
    identity: Identity | None,
    gateway: AttachedServer | None,
) -> None:
    async def warm() -> None:
        await stages.start()
        await asyncio.to_thread(stages.runner.wait_until_loaded)
        when_ready()

    async def stop() -> None:
        await asyncio.to_thread(when_stopping)

    async def close() -> None:
        await asyncio.to_thread(stages.close)

    await serve(
        settings,
        Service(
            name="orchestrator",
            register=make_servicers(settings, stages.orchestrator).register,
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
    here = ",".join([IN_PROCESS] * shard_count)
    wired = {
        "ORCHESTRATOR_ENCODER_ADDRESS": IN_PROCESS,
        "ORCHESTRATOR_INDEX_ADDRESSES": here,
        "ORCHESTRATOR_RERANK_ADDRESSES": here,
    }
    return load(OrchestratorSettings, "ORCHESTRATOR_", {**variables, **wired})
