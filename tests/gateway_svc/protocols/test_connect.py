"""gateway_svc.protocols.connect: calls as JSON, for curl and connect-web."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from google.rpc import error_details_pb2

from gateway_svc.upstream import METHODS
from tandem.errors import Overloaded
from tandem.v1 import search_service_pb2 as pb
from tests.support.gateway_svc.running import SEARCH, STREAM, found_one, gateway, no_index

pytestmark = pytest.mark.usefixtures("each_shape")


def envelopes(body: bytes) -> list[tuple[int, bytes]]:
    """Returns the flags and payload of each envelope."""
    found, position = [], 0
    while position < len(body):
        flags, size = struct.unpack_from("!BI", body, position)
        found.append((flags, body[position + 5 : position + 5 + size]))
        position += 5 + size
    return found


async def test_a_search_is_a_plain_post_of_json() -> None:
    async with gateway(found_one) as served:
        response = await served.search({"query": {"text": "a dog"}, "indexId": "scenes"})

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"items": [{"itemId": "a dog", "similarity": 0.5, "retrieveRank": 1}]}
    assert served.service.requests[0].index_id == "scenes"


async def test_protobuf_is_passed_through() -> None:
    request = pb.SearchItemsRequest(index_id="scenes")
    request.query.text = "a cat"
    async with gateway(found_one) as served:
        response = await served.client.post(
            SEARCH,
            content=request.SerializeToString(),
            headers={"content-type": "application/proto"},
        )

    assert pb.SearchItemsResponse.FromString(response.content).items[0].item_id == "a cat"


async def test_an_error_has_its_code_and_the_details_of_grpc() -> None:
    """ErrorInfo has the reason, for programs."""
    async with gateway(no_index) as served:
        response = await served.search({"indexId": "nowhere"})

    error = response.json()
    info = error_details_pb2.ErrorInfo.FromString(
        base64.b64decode(error["details"][0]["value"] + "==")
    )
    assert (response.status_code, error["code"]) == (404, "not_found")
    assert "there is no index 'nowhere'" in error["message"]
    assert (info.reason, info.metadata["index_id"]) == ("INDEX_NOT_FOUND", "nowhere")
    assert error["details"][0]["debug"]["reason"] == "INDEX_NOT_FOUND"


async def test_an_overload_says_when_to_retry() -> None:
    async def busy(_: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        raise Overloaded(what="full", retry_delay_seconds=2.5)

    async with gateway(busy) as served:
        response = await served.search({})

    assert response.status_code == 429
    assert response.headers["retry-after"] == "2"
    assert response.headers["tandem-reason"] == "OVERLOADED"
    assert response.headers["grpc-retry-pushback-ms"] == "2500"
    assert response.json()["details"][1]["debug"] == {"retryDelay": "2.500s"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "over"),
        (b'{"colour": "red"}', "colour"),
        (b'{"query": {"image": "data:image/png;base64,AAAA"}}', "query.image is not base64"),
        (b'{"query": {"text": "\xff"}}', "UTF-8"),
    ],
    ids=["half", "list", "deep", "unknown", "uri", "latin"],
)
async def test_invalid_requests_are_refused_by_name(body: bytes, told: str) -> None:
    async with gateway() as served:
        response = await served.client.post(
            SEARCH, content=body, headers={"content-type": "application/json"}
        )

    assert response.status_code in (400, 413)
    assert told in response.json()["message"]
    assert not served.service.requests


async def test_a_stream_has_both_answers_and_an_end() -> None:
    message = json.dumps({"search": {"query": {"text": "a dog"}}}).encode()
    async with gateway(found_one) as served:
        response = await served.client.post(
            STREAM,
            content=struct.pack("!BI", 0, len(message)) + message,
            headers={"content-type": "application/connect+json"},
        )

    *answers, end = envelopes(response.content)
    phases = [json.loads(payload)["phase"] for _, payload in answers]
    assert phases == ["SEARCH_PHASE_RETRIEVED", "SEARCH_PHASE_FINAL"]
    assert end == (2, b"{}")
    assert response.headers["x-accel-buffering"] == "no"


async def test_an_error_ends_a_stream_by_name() -> None:
    message = b"{}"
    async with gateway(no_index) as served:
        response = await served.client.post(
            STREAM,
            content=struct.pack("!BI", 0, len(message)) + message,
            headers={"content-type": "application/connect+json"},
        )

    [(flags, end)] = envelopes(response.content)
    assert (response.status_code, flags) == (200, 2)
    assert json.loads(end)["error"]["code"] == "not_found"
    assert json.loads(end)["metadata"] == {"tandem-reason": ["INDEX_NOT_FOUND"]}


async def test_every_public_method_answers_json() -> None:
    answers: dict[str, Any] = {}
    async with gateway() as served:
        for path, method in METHODS.items():
            is_streamed = method.is_answer_stream and not method.is_request_stream
            kind = "application/connect+json" if is_streamed else "application/json"
            content = struct.pack("!BI", 0, 2) + b"{}" if is_streamed else b"{}"
            response = await served.client.post(
                path, content=content, headers={"content-type": kind}
            )
            answers[method.name] = response.status_code

    assert answers == dict.fromkeys((method.name for method in METHODS.values()), 200)


async def test_a_unary_call_of_a_stream_names_what_to_send() -> None:
    async with gateway() as served:
        response = await served.client.post(STREAM, json={})

    assert response.status_code == 415
    assert "application/connect+json" in response.json()["message"]


@pytest.mark.parametrize("kind", ["application/connect+json"])
async def test_a_stream_of_a_unary_method_names_what_to_send(kind: str) -> None:
    async with gateway() as served:
        response = await served.client.post(
            SEARCH, content=struct.pack("!BI", 0, 2) + b"{}", headers={"content-type": kind}
        )

    assert response.status_code == 415
    told = "SearchItems answers once; send application/json or application/proto"
    assert response.json() == {"code": "unimplemented", "message": told}
    assert not served.service.requests


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (struct.pack("!BI", 0, 2) + b"{}" + struct.pack("!BI", 0, 2) + b"{}", "has 2 messages"),
        (struct.pack("!BI", 0x40, 2) + b"{}", "a message has unknown flags, 0x40"),
        (struct.pack("!BI", 1, 2) + b"{}", "compressed messages are not read"),
    ],
    ids=["two", "flags", "compressed"],
)
async def test_odd_envelopes_end_the_stream_by_name(body: bytes, told: str) -> None:
    """With the status that clients of streams look at: a message passed over would be lost."""
    async with gateway() as served:
        response = await served.client.post(
            STREAM, content=body, headers={"content-type": "application/connect+json"}
        )

    [(flags, end)] = envelopes(response.content)
    assert (response.status_code, flags) == (200, 2)
    assert told in json.loads(end)["error"]["message"]
    assert not served.service.requests


@pytest.mark.parametrize(("version", "status"), [("1", 200), ("2", 400)])
async def test_another_version_of_the_protocol_is_refused(version: str, status: int) -> None:
    async with gateway() as served:
        response = await served.search({}, connect_protocol_version=version)

    assert response.status_code == status
    assert ("is not served; send 1" in response.text) is (status == 400)
