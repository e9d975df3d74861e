"""Starts one shard: `python -m index_svc`, set up by INDEX_... variables (see `--settings`)."""

import asyncio
import sys

from index_svc.assembly import index_service
from index_svc.settings import IndexSettings
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.serve.server import serve
from tandem.chassis.settings import SettingsError
from tandem.chassis.telemetry.model_metrics import note_shard
from tandem.chassis.tls import load_identity_or_exit
from tandem.local.item_store.refused import StoreRefused
from tandem.platform.files.private_files import keep_files_private


async def main() -> None:
    """Serves until it is stopped."""
    keep_files_private()
    settings = load_or_exit(IndexSettings, "INDEX_")
    identity = load_identity_or_exit()
    guard = load_guard_or_exit(identity)
    note_shard("index", settings.shard_number, settings.shard_count)
    try:
        opened = index_service(settings)
    except (StoreRefused, SettingsError) as error:
        sys.exit(f"index_svc: {error}")
    await serve(settings, opened.service, identity=identity, guard=guard)


if __name__ == "__main__":
    asyncio.run(main())
