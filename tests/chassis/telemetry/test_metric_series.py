"""However many callers there are and whatever they send, there are no more series."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
from collections.abc import Iterator

import grpc
import pytest
import structlog
from prometheus_client import CollectorRegistry

from tandem.chassis.capacity.admission import AdmissionLimits
from tandem.chassis.telemetry import log
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.errors import IndexNotFound, QueryInvalid
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.scripted_service import scripted_service

CALL_COUNT = 2_000
WARM_COUNT = 200
AT_ONCE_COUNT = 32
SEED = 7


def series_count(registry: CollectorRegistry = REGISTRY) -> int:
    """Returns how many series a scrape has."""
    return sum(len(family.samples) for family in registry.collect())


@pytest.fixture
def quiet() -> Iterator[None]:
    """Logs as services do, to nowhere: a traceback for people takes longer than a call."""
    log.configure("test", io.StringIO())
    yield
    structlog.reset_defaults()


async def by_what_is_asked(
    request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
) -> pb.SearchItemsResponse:
    """Answers, refuses by one name or another, or fails."""
    match len(request.index_id) % 4:
        case 0:
            raise IndexNotFound(index_id=request.index_id)
        case 1:
            raise QueryInvalid(why=request.query.text)
        case 2:
            raise RuntimeError(request.query.text)
        case _:
            return pb.SearchItemsResponse()


@pytest.mark.timeout(300)
async def test_random_callers_add_no_series(quiet: None) -> None:
    chance = random.Random(SEED)

    def word() -> str:
        return f"{chance.getrandbits(64):x}"[: chance.randint(1, 16)]

    limits = AdmissionLimits(max_inflight_count=AT_ONCE_COUNT)
    async with scripted_service(by_what_is_asked, limits=limits) as channel:
        search = SearchServiceStub(channel).SearchItems

        async def call() -> None:
            metadata = (
                ("x-request-id", word()),
                ("traceparent", f"00-{chance.getrandbits(128):032x}-{'ab' * 8}-01"),
                ("authorization", f"Bearer {word()}"),
                (f"x-{word()}", word()),
            )
            request = pb.SearchItemsRequest(index_id=word(), query={"text": word()})
            # One in ten asks for a method that is not there.
            method = search
            if chance.random() < 0.1:
                method = channel.unary_unary(
                    f"/tandem.v1.SearchService/{word()}",
                    request_serializer=pb.SearchItemsRequest.SerializeToString,
                )
            with contextlib.suppress(grpc.aio.AioRpcError):
                await method(request, metadata=metadata)

        async def many(count: int) -> None:
            for _ in range(count // AT_ONCE_COUNT + 1):
                await asyncio.gather(*(call() for _ in range(AT_ONCE_COUNT)))

        await many(WARM_COUNT)
        before = series_count()
        await many(CALL_COUNT)
        assert series_count() == before
