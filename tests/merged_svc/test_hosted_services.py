"""Services of one process keep apart what fails: a damaged shard is not the other's trouble."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from merged_svc.hosted_services import HostedServices, hosted_services
from orchestrator_svc.assembly import downstream
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.settings import SettingsError
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.deadline import Deadline
from tandem.errors import ServiceUnavailable
from tandem.local.item_store.item_store import ItemStore
from tandem.remote.startup import Dependencies
from tandem.stages.item_write import Upsert
from tandem.stages.retrieval import ShardDescription
from tests.support.item_store.made_items import FINGERPRINT, text_item

INDEX_ID = "pets"


def stored(folder: Path, number: int) -> None:
    """Stores enough items in one of two shards that its file has pages to damage."""
    store = ItemStore.open(folder, number, 2, map_bytes=64 << 20)
    store.apply([Upsert(INDEX_ID, FINGERPRINT, [text_item(f"{n}", n) for n in range(200)])])
    store.close()


async def asked(
    services: HostedServices, settings: OrchestratorSettings, number: int
) -> ShardDescription:
    """Returns what a shard says of the index, as the orchestrator asks."""
    behind = downstream(settings, None, services.hosted)
    try:
        return await behind.stages.shards[number].describe_index(INDEX_ID, Deadline.after(60.0))
    finally:
        for channel in behind.channels:
            await channel.close()


async def test_a_damaged_shard_refuses_by_name_and_the_other_answers(tmp_path: Path) -> None:
    """Its health keeps the start waiting for it, and the service as a whole is not serving."""
    for number in range(2):
        stored(tmp_path / f"shard-{number}", number)
    data = tmp_path / "shard-1" / "data.mdb"
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2 // 4096 * 4096])
    settings = OrchestratorSettings(
        encoder_address="127.0.0.1:1",
        index_addresses=("in-process", "in-process"),
        rerank_addresses=("127.0.0.1:1", "127.0.0.1:1"),
    )
    environ = {
        "INDEX_STORE_PATH": str(tmp_path / "shard-{shard}"),
        "INDEX_STORE_MAP_BYTES": str(64 << 20),
    }

    async with hosted_services(settings, None, environ) as services:
        await services.start()
        async with asyncio.timeout(60):
            while not await is_loaded(services):  # noqa: ASYNC110 (nothing tells it)
                await asyncio.sleep(0.01)
        with pytest.raises(ServiceUnavailable, match=r"shard corrupt: restore .*shard-1"):
            await asked(services, settings, 1)
        assert REGISTRY.get_sample_value("tandem_serving", {"service": "index"}) == 0
        assert items_of("0") == 200
        corrupt = [
            REGISTRY.get_sample_value("tandem_index_shard_corrupt", {"shard": shard})
            for shard in ("0", "1")
        ]
        assert corrupt == [0, 1]
        info = {"service": "index", "shard": "1", "shard_count": "2"}
        assert REGISTRY.get_sample_value("tandem_shard_info", info) == 1
        checks = {name: hosted.check for name, hosted in services.hosted.items()}
        dependencies = Dependencies(checks, wait_seconds=60.0)
        with pytest.raises(ServiceUnavailable, match=r"index-1 .*not serving yet"):
            await dependencies.check()


async def test_shards_of_this_process_have_the_orchestrators_map() -> None:
    settings = OrchestratorSettings(
        encoder_address="127.0.0.1:1",
        index_addresses=("in-process",),
        rerank_addresses=("127.0.0.1:1",),
        shard_map_version=2,
    )
    with pytest.raises(SettingsError, match="INDEX_SHARD_MAP_VERSION is 1"):
        async with hosted_services(settings, None, {"INDEX_STORE_PATH": "unopened"}):
            pass


async def is_loaded(services: HostedServices) -> bool:
    """Returns whether the sound shard is serving."""
    return await services.hosted["index-0"].check() is None


def items_of(shard: str) -> float | None:
    """Returns how many texts a shard has, as Prometheus reads it."""
    return REGISTRY.get_sample_value("tandem_index_items", {"modality": "text", "shard": shard})
