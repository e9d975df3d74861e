"""gateway_svc.rest.search: POST /v1/search, as a person writes it."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tandem.v1 import search_service_pb2 as pb
from tests.support.gateway_svc.running import Gateway, found_one, gateway, no_index

pytestmark = pytest.mark.usefixtures("each_shape")

PICTURE = b"\x89PNG picture"
ENCODED = base64.b64encode(PICTURE).decode()


async def sent(body: dict[str, Any]) -> pb.SearchItemsRequest:
    """Returns what the orchestrator hears of a body."""
    async with gateway() as served:
        response = await served.client.post("/v1/search", json=body)
        assert response.status_code == 200, response.text
        request = served.service.requests[0]
    assert isinstance(request, pb.SearchItemsRequest)
    return request


async def test_a_text_is_found_by_a_text() -> None:
    async with gateway(found_one) as served:
        response = await served.client.post(
            "/v1/search", json={"query": "a dog", "index_id": "scenes", "retrieve_k": 5}
        )

    [item] = response.json()["items"]
    assert response.headers["content-type"] == "application/json"
    assert (item["item_id"], item["similarity"], item["final_rank"]) == ("a dog", 0.5, 0)
    assert response.json()["next_cursor"] == ""
    assert served.service.requests[0].retrieve_k == 5


@pytest.mark.parametrize(
    "query",
    [
        {"image": ENCODED},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
        {"image_url": f"data:image/png;base64,{ENCODED}"},
    ],
    ids=["base64", "part", "short_part"],
)
async def test_a_picture_is_sent_as_its_bytes(query: dict[str, Any]) -> None:
    assert (await sent({"query": query})).query.image == PICTURE


@pytest.mark.parametrize("name", ["filter", "filter_text"])
async def test_a_filter_may_be_a_text(name: str) -> None:
    assert (await sent({"query": "dog", name: "style = noto"})).filter_text == "style = noto"


async def test_a_filter_may_be_json() -> None:
    where = {"equals": {"name": "style", "value": {"text": "noto"}}}

    assert (await sent({"query": "dog", "filter": where})).filter.equals.value.text == "noto"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"query": {"image": "https://example.com/dog.png"}}, "nothing is fetched"),
        ({"query": {"image_url": {"url": "http://169.254.169.254/"}}}, "nothing is fetched"),
        ({"query": {"image": "no base64!"}}, "not base64"),
        ({"query": {"image": 3}}, "query.image"),
        ({"query": {"text": "dog", "image": ENCODED}}, "needs exactly one of"),
        ({"query": 3}, "neither a text nor an object"),
        ({"query": "dog", "filter": "a = 1", "filter_text": "b = 2"}, "filter_text"),
        ({"query": "dog", "colour": "red"}, "colour"),
    ],
)
async def test_contradictory_searches_are_refused_by_name(body: dict[str, Any], told: str) -> None:
    async with gateway() as served:
        response = await served.client.post(
            "/v1/search",
            content=json.dumps(body),
            headers={"content-type": "application/json"},
        )

    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert told in response.json()["detail"]
    assert response.json()["reason"] == "REQUEST_MALFORMED"
    assert not served.service.requests


async def test_an_error_is_a_problem_with_the_reason_of_grpc() -> None:
    async with gateway(no_index) as served:
        response = await served.client.post(
            "/v1/search",
            json={"query": "dog", "index_id": "nowhere"},
            headers={"x-request-id": "mine-1"},
        )

    assert response.status_code == 404
    assert response.json() == {
        "type": "urn:tandem:reason:INDEX_NOT_FOUND",
        "title": "Not Found",
        "status": 404,
        "detail": "there is no index 'nowhere'; ingest into it, or check the id",
        "reason": "INDEX_NOT_FOUND",
        "request_id": "mine-1",
        "metadata": {"index_id": "nowhere"},
    }
    assert response.headers["x-request-id"] == "mine-1"


async def events(served: Gateway, body: dict[str, Any], **headers: str) -> list[tuple[str, Any]]:
    """Returns the name and the data of each event."""
    response = await served.client.post("/v1/search", json=body, headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["cache-control"] == "no-store, no-transform"
    found = []
    for event in response.text.strip().split("\n\n"):
        name, data = event.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def test_a_streamed_search_has_two_events() -> None:
    async with gateway(found_one) as served:
        by_body = await events(served, {"query": "a dog", "stream": True})
        by_header = await events(served, {"query": "a dog"}, accept="text/event-stream")

    assert by_body == by_header
    assert [name for name, _ in by_body] == ["retrieved", "final"]
    assert by_body[1][1]["items"][0]["item_id"] == "a dog"


async def test_a_streamed_search_that_fails_ends_with_its_problem() -> None:
    async with gateway(no_index) as served:
        [(name, problem)] = await events(served, {"query": "a dog", "stream": True})

    assert (name, problem["reason"], problem["status"]) == ("error", "INDEX_NOT_FOUND", 404)


@pytest.mark.parametrize("ends", ["closed", "reset"])
async def test_events_that_are_cut_in_the_middle_end_the_search(ends: str) -> None:
    async def second_phase_never(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        phases.append(request)
        if len(phases) > 1:
            second_began.set()
            await asyncio.Event().wait()
        return await found_one(request)

    phases: list[pb.SearchItemsRequest] = []
    second_began = asyncio.Event()
    body = b'{"query": "a dog", "stream": true}'
    head = "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    async with gateway(second_phase_never) as served:
        reader, writer = await served.send(
            f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        async with asyncio.timeout(60.0):
            read = await reader.readuntil(b"event: retrieved")
            await second_began.wait()
            if ends == "closed":
                writer.close()
            else:
                writer.transport.abort()
            await served.service.stream_ended.wait()
            await served.until_no_request()
        after = await served.client.post("/v1/items:remove", json={"index_id": "scenes"})

    assert b"event: final" not in read
    assert len(phases) == 2
    assert after.status_code == 200
