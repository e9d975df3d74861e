"""Three real Tritons behind one client: each gets its third of the requests."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import Manifest
from tandem.triton import client as client_module
from tandem.triton.client import TritonClient
from tests.support.triton.metrics import Counts
from tests.support.triton.tiny_triton import OwnServing, serving

CLIENT_COUNT = 16
CALL_COUNT = 30
"""Of each client, one row a call."""
MODEL = "joint_encoder"


async def rows_of_each(tritons: list[OwnServing], manifest: Manifest) -> list[float]:
    """Returns how many rows each server computed of what sixteen clients sent at once."""
    before = [Counts.of(each.metrics_url, MODEL) for each in tritons]
    client = TritonClient("ipv4:" + ",".join(each.address for each in tritons))
    model = ServedModel(client, manifest)
    text = np.array([2, 7, 3], dtype=np.int32)

    async def call() -> None:
        for _ in range(CALL_COUNT):
            await model.embed_texts([text], 60.0)

    await asyncio.gather(*(call() for _ in range(CLIENT_COUNT)))
    await client.close()
    return [
        Counts.at_rest(each.metrics_url, MODEL).since(start).inferences
        for each, start in zip(tritons, before, strict=True)
    ]


@pytest.mark.slow
async def test_three_tritons_get_a_third_of_the_requests_each(
    lone_instances: Path, tiny_manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a tenth of each other, by their own counts; without the policy one gets all."""
    with ExitStack() as opened:
        tritons = [opened.enter_context(serving(lone_instances)) for _ in range(3)]
        shared = await rows_of_each(tritons, tiny_manifest)
        monkeypatch.setattr(client_module, "_CHANNEL_ARGUMENTS", [])
        unshared = await rows_of_each(tritons, tiny_manifest)

    total = CLIENT_COUNT * CALL_COUNT
    print("rows", shared, unshared)
    assert sum(shared) == total
    assert max(shared) - min(shared) <= 0.1 * total / 3
    assert sorted(unshared) == [0, 0, total]
