"""Runs the orchestrator with the services that are in its process: `python -m merged_svc`.

Those are the ones whose ORCHESTRATOR_… address is `in-process`. Their own ENCODER_…, INDEX_… and
RERANK_… variables apply, except ports and admission, which they do not have here. With
GATEWAY_ORCHESTRATOR_ADDRESS=in-process it serves HTTP too, by the other GATEWAY_… variables.
"""

import asyncio
import os
import sys

from merged_svc.hosted_gateway import hosted_gateway
from merged_svc.hosted_services import hosted_services
from orchestrator_svc.assembly import downstream
from orchestrator_svc.serving import serve_searches
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.settings import exiting_on_faults
from tandem.chassis.tls import load_identity_or_exit
from tandem.local.item_store.refused import StoreRefused
from tandem.platform.files.private_files import keep_files_private


async def main(settings: OrchestratorSettings) -> None:
    """Serves until a signal stops it."""
    if settings.shard_map_file:
        sys.exit("merged_svc: ORCHESTRATOR_SHARD_MAP_FILE needs shards outside this process")
    # Before the first channel, as prepare() does: children check the stores.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    keep_files_private()
    identity = load_identity_or_exit()
    gateway = hosted_gateway(os.environ, identity)
    async with hosted_services(settings, identity, os.environ) as services:
        stages = downstream(settings, identity, services.hosted)
        await serve_searches(settings, identity, stages, services.start, gateway)


if __name__ == "__main__":
    try:
        with exiting_on_faults():
            asyncio.run(main(load_or_exit(OrchestratorSettings, "ORCHESTRATOR_")))
    except StoreRefused as error:
        sys.exit(f"merged_svc: {error}")
