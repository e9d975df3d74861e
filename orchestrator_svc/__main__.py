"""Wires and runs the orchestrator: python -m orchestrator_svc."""

import asyncio
import sys

from orchestrator_svc.assembly import downstream
from orchestrator_svc.serving import serve_searches
from orchestrator_svc.settings import IN_PROCESS, OrchestratorSettings, is_in_process
from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.tls import load_identity_or_exit


async def main(settings: OrchestratorSettings) -> None:
    """Serves until a signal stops it."""
    addresses = (settings.encoder_address, *settings.index_addresses, *settings.rerank_addresses)
    if any(map(is_in_process, addresses)):
        sys.exit(f"orchestrator_svc: python -m merged_svc runs services that are {IN_PROCESS}")
    identity = load_identity_or_exit()
    await serve_searches(settings, identity, downstream(settings, identity, {}))


if __name__ == "__main__":
    asyncio.run(main(load_or_exit(OrchestratorSettings, "ORCHESTRATOR_")))
