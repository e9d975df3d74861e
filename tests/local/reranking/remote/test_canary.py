"""The canary of a remote cross-encoder: which APIs it refuses, and how often it asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tandem.errors import ModelOutputInvalid, ModelUnavailable
from tandem.local.reranking.remote.canary import RemoteCanary
from tandem.local.reranking.remote.endpoint import RemoteEndpoint
from tandem.local.reranking.remote.http_client import RemoteHttpClient
from tandem.local.reranking.remote.remote_scorer import RemoteScorer
from tests.support.rerank_svc.remote_api import RemoteApi, Sabotage, remote_api


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def canary_of(api: RemoteApi, clock: Clock, **fields: Any) -> AsyncIterator[RemoteCanary]:
    endpoint = RemoteEndpoint(url=api.url, model="m", **fields)
    client = RemoteHttpClient(endpoint)
    try:
        yield RemoteCanary(RemoteScorer(client, endpoint), endpoint, clock=clock)
    finally:
        await client.close()


async def checked(sabotage: Sabotage, **fields: Any) -> RemoteApi:
    """Returns the API after a check of its canary, which raises what the canary does."""
    with remote_api(sabotage) as api:
        async with canary_of(api, Clock(), **fields) as canary:
            await canary.check()
        return api


@pytest.mark.parametrize("sabotage", [Sabotage.NONE, Sabotage.SORTED])
async def test_a_sound_api_passes(sabotage: Sabotage) -> None:
    """After each pair alone, then all together in both orders; pictures, then texts."""
    api = await checked(sabotage)

    assert api.document_counts == [1, 1, 1, 3, 3] * 2


@pytest.mark.parametrize(
    ("sabotage", "says"),
    [
        (Sabotage.FLAT, "its scores are flat: 6 different pairs"),
        (Sabotage.BATCH_DEPENDENT, r"depend on the batch: a pair has 0\.\d+ alone"),
        (Sabotage.SWAPPED, "depend on the batch"),
        (Sabotage.NAN, "a score of nan"),
        (Sabotage.FEWER, "0 results for 1 documents"),
    ],
)
async def test_an_api_with_meaningless_scores_is_refused(sabotage: Sabotage, says: str) -> None:
    """Each by its fault; nothing of it reaches a search, since the service is not ready."""
    with pytest.raises(ModelOutputInvalid, match=says):
        await checked(sabotage)


async def test_a_model_that_reads_no_picture_as_a_query_is_not_sent_one() -> None:
    api = await checked(Sabotage.SORTED, takes_picture_queries=False)

    assert api.document_counts == [1, 1, 1, 3, 3]
    assert all(isinstance(each["query"], str) for each in api.requests)


async def test_batches_are_no_larger_than_the_endpoint_takes() -> None:
    api = await checked(Sabotage.SORTED, batch_size=2)

    assert max(api.document_counts) == 2


async def test_an_api_of_one_document_a_request_is_compared_over_several() -> None:
    """A single pair would always look flat."""
    one_by_one: dict[str, Any] = {"batch_size": 1, "takes_picture_queries": False}
    api = await checked(Sabotage.SORTED, **one_by_one)

    assert max(api.document_counts) == 1
    with pytest.raises(ModelOutputInvalid, match="its scores are flat: 3 different pairs"):
        await checked(Sabotage.FLAT, **one_by_one)


async def test_a_canary_is_sent_every_ten_minutes_or_soon_after_a_failure() -> None:
    clock = Clock()
    with remote_api(Sabotage.ERROR_500) as api:
        async with canary_of(api, clock) as canary:
            for _ in range(3):
                with pytest.raises(ModelUnavailable, match="500"):
                    await canary.check()
            assert len(api.requests) == 1

            api.sabotage = Sabotage.SORTED
            clock.seconds += 5
            await canary.check()
            sound_count = len(api.requests)
            clock.seconds += 599
            await canary.check()
            assert len(api.requests) == sound_count

            api.sabotage = Sabotage.FLAT
            clock.seconds += 1
            with pytest.raises(ModelOutputInvalid, match="flat"):
                await canary.check()


async def test_an_api_that_takes_longer_than_a_health_check_stays_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last result holds until the slow canary has one; the first is waited for."""
    monkeypatch.setattr("tandem.local.reranking.remote.canary._WAIT_SECONDS", 0.05)
    clock = Clock()
    with remote_api(Sabotage.SORTED) as api:
        async with canary_of(api, clock) as canary:
            await canary.check()
            api.sabotage = Sabotage.SLOW
            clock.seconds += 600
            async with asyncio.timeout(5):
                await canary.check()
                await canary.check()

            api.hang.set()  # It ends the connection.
            monkeypatch.undo()
            with pytest.raises(ModelUnavailable):
                await canary.check()
