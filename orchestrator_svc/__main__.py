"""Wires and runs the orchestrator: python -m orchestrator_svc."""

import asyncio
import sys

from orchestrator_svc.assembly import downstream
from orchestrator_svc.followed_shards import settings_of, shards_of_file
from orchestrator_svc.serving import serve_searches
from orchestrator_svc.settings import IN_PROCESS, OrchestratorSettings, is_in_process
from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.settings import exiting_on_faults
from tandem.chassis.tls import load_identity_or_exit


async def main(settings: OrchestratorSettings) -> None:
    """Serves until a signal stops it."""
    addresses = (settings.encoder_address, *settings.index_addresses, *settings.rerank_addresses)
    if any(map(is_in_process, addresses)):
        sys.exit(f"orchestrator_svc: python -m merged_svc runs services that are {IN_PROCESS}")
    identity = load_identity_or_exit()
    with exiting_on_faults():
        moved = shards_of_file(settings)
        if moved is not None and moved.version < settings.shard_map_version:
            moved = None  # The settings were changed since.
        if moved is not None:
            settings = settings_of(settings, moved)
    await serve_searches(
        settings,
        identity,
        downstream(settings, identity, {}),
        moved_from=None if moved is None else moved.moved_from,
    )


if __name__ == "__main__":
    asyncio.run(main(load_or_exit(OrchestratorSettings, "ORCHESTRATOR_")))
