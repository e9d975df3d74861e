"""calls.status: every error crosses a real connection and is itself on the other side."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tandem.chassis.calls.channels import call, open_channel
from tandem.errors import (
    ERROR_CLASSES,
    DeadlineExceeded,
    IndexNotFound,
    InternalFault,
    ModelMismatch,
    Overloaded,
    QuotaExceeded,
    ServiceUnavailable,
    TandemError,
    error_from_reason,
)
from tandem.v1 import error_reason_pb2
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.scripted_service import Search, nothing_found, scripted_service


def raising(error: BaseException) -> Search:
    """Returns a search that always raises `error`."""

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        raise error

    return search


async def failed_search(error: TandemError) -> grpc.aio.AioRpcError:
    """Returns what a caller sees of a search that raised `error`."""
    async with scripted_service(raising(error)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)
    return caught.value


def test_the_codes_are_those_that_the_contract_states() -> None:
    """Each value's comment in error_reason.proto begins with its status code."""
    proto = Path(__file__).parents[3] / "protos" / error_reason_pb2.DESCRIPTOR.name
    stated = {}
    for line in proto.read_text().splitlines():
        if comment := re.match(r"  // ([A-Z_]+): ", line):
            code = comment[1]
        elif value := re.match(r"  ERROR_REASON_([A-Z_]+) = [1-9]", line):
            stated[value[1]] = code

    assert {reason: kind.status for reason, kind in ERROR_CLASSES.items()} == stated


async def test_every_error_reaches_its_caller_whole() -> None:
    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        raise error_from_reason(request.query.text, "größer als 5 €", {"name": "wert"})

    async with scripted_service(search) as channel:
        for reason, kind in ERROR_CLASSES.items():
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await SearchServiceStub(channel).SearchItems(
                    pb.SearchItemsRequest(query={"text": reason}), timeout=60
                )

            seen = caught.value
            status = rpc_status.from_call(seen)
            info = error_details_pb2.ErrorInfo()
            assert status.details[0].Unpack(info), reason
            assert seen.code() is grpc.StatusCode[kind.status], reason
            assert seen.details() == status.message == "größer als 5 €", reason
            assert (info.reason, info.domain) == (reason, "tandem")
            assert dict(info.metadata) == {"name": "wert"}, reason
            assert dict(seen.trailing_metadata())["tandem-reason"] == reason


async def test_a_downstream_error_is_raised_again_as_itself() -> None:
    """The service in the middle neither loses the reason nor its metadata."""
    sent = ModelMismatch(request="aa", index="bb")

    async with scripted_service(raising(sent)) as channel:
        with pytest.raises(ModelMismatch) as caught:
            await search(channel)

    assert (caught.value.message, caught.value.metadata) == (sent.message, sent.metadata)


async def test_overload_says_when_to_retry() -> None:
    error = Overloaded(what="all seats are taken", retry_delay_seconds=0.35)
    status = rpc_status.from_call(await failed_search(error))

    retry = error_details_pb2.RetryInfo()
    assert status.details[1].Unpack(retry)
    assert retry.retry_delay.ToTimedelta().total_seconds() == 0.35


@pytest.mark.parametrize(
    ("error", "milliseconds"),
    [
        (Overloaded(what="all seats are taken", retry_delay_seconds=0.35), "350"),
        (QuotaExceeded(what="pairs", rate=2.0, retry_delay_seconds=0.5, most=4.0), "-1"),
        (ModelMismatch(request="a", index="b"), None),
    ],
    ids=["overloaded", "over the burst", "no such wish"],
)
async def test_clients_of_any_language_learn_when_to_retry(
    error: TandemError, milliseconds: str | None
) -> None:
    """By gRPC's own key, which their retries honour; -1 forbids them."""
    metadata = dict((await failed_search(error)).trailing_metadata())

    assert metadata.get("grpc-retry-pushback-ms") == milliseconds


async def test_an_overlong_message_is_cut_to_fit_metadata() -> None:
    """gRPC refuses larger metadata, and the caller would learn nothing at all."""
    seen = await failed_search(InternalFault(why="€" * 100_000))

    assert seen.code() == grpc.StatusCode.INTERNAL
    assert 0 < len(seen.details()) <= 512


async def test_a_text_that_does_not_encode_does_not_hide_the_error() -> None:
    seen = await failed_search(IndexNotFound(index_id="\udcff"))

    assert seen.code() == grpc.StatusCode.NOT_FOUND


async def test_a_closed_port_is_service_unavailable() -> None:
    async with open_channel("127.0.0.1:1") as channel:
        with pytest.raises(ServiceUnavailable) as caught:
            await search(channel)

    assert caught.value.metadata == {"service": "search"}


async def test_a_slow_answer_is_deadline_exceeded() -> None:
    async def slow(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        await asyncio.sleep(60)
        return pb.SearchItemsResponse()

    async with scripted_service(slow) as channel:
        with pytest.raises(DeadlineExceeded):
            await search(channel, timeout_seconds=0.1)


async def test_a_method_that_is_not_there_is_an_internal_fault() -> None:
    async with scripted_service(nothing_found) as channel:
        method = channel.unary_unary("/tandem.v1.SearchService/FindItems")
        with pytest.raises(InternalFault, match="search answered UNIMPLEMENTED"):
            await call(method, b"", service="search", timeout_seconds=60)


async def search(channel: grpc.aio.Channel, timeout_seconds: float = 60) -> pb.SearchItemsResponse:
    """Searches as a service calls another."""
    return await call(
        SearchServiceStub(channel).SearchItems,
        pb.SearchItemsRequest(),
        service="search",
        timeout_seconds=timeout_seconds,
    )
