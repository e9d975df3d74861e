"""A second model beside the first, over the same shards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from orchestrator_svc.assembly import Downstream, downstream
from orchestrator_svc.followed_shards import settings_of
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.health.health import Health
from tandem.chassis.serve.server import make_server
from tandem.chassis.settings import SettingsError
from tandem.contract.deadline import Deadline
from tandem.errors import ServiceUnavailable
from tandem.remote.move.move_files import MovedShards
from tandem.remote.startup import Dependencies
from tandem.search.assembly import make_orchestrator
from tests.support.orchestrator_svc.downstream import (
    DESCRIPTION,
    FakeEncoder,
    FakeShard,
    adding_models,
)


async def _warm() -> None:
    """Returns at once."""


@asynccontextmanager
async def models(fingerprint: str) -> AsyncIterator[tuple[str, grpc.aio.Server]]:
    """Serves an encoder and a reranker of a model."""
    encoder, reranker = FakeEncoder(), FakeShard()
    encoder.description = reranker.description = replace(DESCRIPTION, fingerprint=fingerprint)
    health = Health("fake", [])
    server = await make_server("fake", health, adding_models(encoder, reranker), [])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await health.watch(_warm, None)
    try:
        yield f"127.0.0.1:{port}", server
    finally:
        await server.stop(None)


def settings(address: str, next_address: str) -> OrchestratorSettings:
    """Returns the settings of one shard, whose index_svc nothing calls here."""
    return OrchestratorSettings(
        encoder_address=address,
        index_addresses=(address,),
        rerank_addresses=(address,),
        next_encoder_address=next_address,
        next_rerank_addresses=(next_address,),
    )


async def fingerprints(behind: Downstream, asked: OrchestratorSettings) -> list[str]:
    """Returns the model of each set, as its orchestrator describes it."""
    assert behind.next_stages is not None
    sets = (behind.stages, behind.next_stages)
    orchestrators = [make_orchestrator(asked, stages) for stages in sets]
    described = [await each.describe_model(Deadline.after(10.0)) for each in orchestrators]
    return [each.fingerprint for each in described]


async def test_each_model_answers_by_its_own_services_over_the_same_shards() -> None:
    """Also where their addresses are exchanged."""
    async with models("model-a") as (one, _), models("model-b") as (other, _):
        for wired, expected in (
            (settings(one, other), ["model-a", "model-b"]),
            (settings(other, one), ["model-b", "model-a"]),
        ):
            behind = downstream(wired, None, {})

            assert await fingerprints(behind, wired) == expected
            assert behind.next_stages is not None
            assert behind.next_stages.shards is behind.stages.shards
            await behind.close()


async def test_a_next_model_that_is_away_is_not_waited_for() -> None:
    """Its errors name its own services, and its breaker leaves the serving encoder alone."""
    async with models("model-a") as (address, _), models("model-b") as (other, other_server):
        behind = downstream(settings(address, other), None, {})
        await other_server.stop(None)

        await Dependencies(behind.checks, wait_seconds=60.0).check()
        assert behind.next_stages is not None
        for _ in range(6):
            with pytest.raises(ServiceUnavailable, match="next-encoder"):
                await behind.next_stages.encoder.encode([], Deadline.after(1.0))
            with pytest.raises(ServiceUnavailable, match="next-rerank-0"):
                await behind.next_stages.rerankers[0].describe_model(Deadline.after(1.0))
        await behind.stages.encoder.encode([], Deadline.after(1.0))
        await behind.close()


def test_a_move_names_the_rerankers_of_both_models() -> None:
    """An orchestrator with a next model refuses a file that does not."""
    moved = MovedShards(
        version=2,
        index_addresses=("a:1", "a:2"),
        rerank_addresses=("b:1", "b:2"),
        moved_from_version=1,
        moved_from_count=1,
        next_rerank_addresses=("c:1", "c:2"),
    )
    both = settings("a:1", "b:1")

    assert settings_of(both, moved).next_rerank_addresses == ("c:1", "c:2")
    alone = replace(both, next_encoder_address="", next_rerank_addresses=())
    assert settings_of(alone, moved).next_rerank_addresses == ()
    with pytest.raises(SettingsError, match="it names 0"):
        settings_of(both, replace(moved, next_rerank_addresses=()))
