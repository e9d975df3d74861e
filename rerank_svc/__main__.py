"""Runs rerank_svc: `python -m rerank_svc`."""

import asyncio
import sys

from rerank_svc.assembly import rerank_service
from rerank_svc.settings import RerankSettings
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.serve.server import serve
from tandem.chassis.settings import exiting_on_faults
from tandem.chassis.telemetry.model_metrics import note_shard
from tandem.chassis.tls import load_identity_or_exit
from tandem.local.item_store.refused import StoreRefused


async def main(settings: RerankSettings) -> None:
    """Serves until SIGTERM or SIGINT."""
    identity = load_identity_or_exit()
    note_shard("rerank", settings.shard_number, settings.shard_count)
    async with rerank_service(settings, identity) as service:
        await serve(settings, service, identity=identity, guard=load_guard_or_exit(identity))


if __name__ == "__main__":
    try:
        with exiting_on_faults():
            asyncio.run(main(load_or_exit(RerankSettings, "RERANK_")))
    except StoreRefused as error:
        sys.exit(f"rerank_svc: {error}")
