"""Requests that no client of ours sends: each gets its status, a problem, and a remedy."""

from __future__ import annotations

import json

import pytest

from gateway_svc.json_message import read_json
from tandem.contract.methods import RequestLimit
from tandem.errors import RequestMalformed
from tests.support.gateway_svc.running import gateway

SEARCH = "/v1/search"
JSON = {"content-type": "application/json"}
HEAD = "Host: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "it is not JSON: Expecting value"),
        (b"null", "the body is not a JSON object; send JSON as /openapi.json describes it"),
        (b'{"query": "a", "query": "b"}', "the member 'query' occurs twice; send it once"),
        (b'{"query": {"text": "a", "text": "a"}}', "the member 'text' occurs twice"),
        (b'{"min_probability": NaN}', "NaN is not a JSON number"),
        (b'{"min_probability": 1' + b"0" * 400 + b"}", "int too large to convert to float"),
        (b'{"index_id": "a", "indexId": "b"}', "indexId and index_id are one field"),
        (b'{"return_n": ' + b"9" * 5000 + b"}", "Exceeds the limit (4300 digits)"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested too deeply; send fewer levels"),
        (b'{"filter": ' + b'{"negated": ' * 200 + b"{}" + b"}" * 201, "Message too deep"),
        (b'{"\\ud800": 1}', "a lone surrogate after '{\"'; send text that is Unicode"),
        ("{}".encode("utf-16"), "not UTF-8 at byte 0; send JSON in UTF-8"),
        ('{"query": "é"}'.encode("latin-1"), "not UTF-8 at byte 11"),
        (b'{"hybrid": ""}', "hybrid is not a JSON object"),
        (b'{"stream": "yes"}', "stream is neither true nor false; send one of them"),
        (b'{"filter": "a = b", "filter_text": "a = b"}', "filter_text are both set; send one"),
    ],
)  # fmt: skip
async def test_a_body_is_refused_with_a_remedy(body: bytes, told: str) -> None:
    async with gateway() as served:
        response = await served.client.post(SEARCH, content=body, headers=JSON)

    detail = response.json()["detail"]
    assert (response.status_code, response.json()["reason"]) == (400, "REQUEST_MALFORMED")
    assert response.headers["content-type"] == "application/problem+json"
    assert told in detail
    assert "; send" in detail
    assert "a message of tandem.v1" not in detail
    assert not served.service.requests


async def test_the_last_of_many_members_is_found_to_repeat() -> None:
    """In one pass over the names: comparing each with each would take hours."""
    members = [f'"{number}": 1' for number in range(400_000)]
    body = f"{{{','.join([*members, members[-1]])}}}"

    with pytest.raises(RequestMalformed, match="the member '399999' occurs twice"):
        await read_json(body.encode(), RequestLimit(len(body), max_field_count=len(members) + 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-request-timeout-ms", "1.5"),
        ("connect-timeout-ms", ""),
        ("grpc-timeout", "5x"),
    ],
)
async def test_an_invalid_timeout_is_refused(name: str, value: str) -> None:
    """By its header; the default would be another deadline than the caller has in mind."""
    async with gateway() as served:
        response = await served.client.post(SEARCH, json={}, headers={name: value})
        fine = await served.client.post(SEARCH, json={}, headers={"x-request-timeout-ms": "9000"})

    assert response.status_code == 400
    assert f"{name} is not a timeout; send" in response.json()["detail"]
    assert fine.status_code == 200


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/items?index_id=i&page_sise=5", "no parameter 'page_sise'; send index_id or id_pre"),
        ("/v1/items?index_id=i&index_id=j", "a parameter twice; send each once"),
        ("/v1/items?index_id=i&page_size=-1", "page_size is not a number in range; send 1 to 1,"),
        ("/v1/items/%ff?index_id=i", "the path is not UTF-8"),
        ("/v1/indexes/i?full_coverage_required=1", "neither true nor false; send one of them"),
        ("/v1/items?index_id=i&page_token=%E2%82", "the query is not UTF-8"),
    ],
)
async def test_a_url_is_refused_with_a_remedy(path: str, told: str) -> None:
    """An ignored parameter would be a misspelt one, and another id could be deleted."""
    async with gateway() as served:
        response = await served.client.get(path)

    assert response.status_code == 400
    assert told in response.json()["detail"]


@pytest.mark.parametrize("path", [SEARCH, "/tandem.v1.SearchService/SearchItems"])
async def test_parameters_of_a_request_with_a_body_are_refused(path: str) -> None:
    """What would be in the URL is in the body: `?index_id=i` was not read, and not refused."""
    async with gateway() as served:
        response = await served.client.post(f"{path}?index_id=i", json={"query": "a"})

    told = response.json()
    assert response.status_code == 400
    assert "no parameter 'index_id'; send none" in told.get("detail", told.get("message"))
    assert not served.service.requests


async def test_options_lists_the_methods() -> None:
    async with gateway() as served:
        items = await served.client.options("/v1/items/a")
        search = await served.client.options(SEARCH)

    assert (items.status_code, items.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS")
    assert (search.status_code, search.headers["allow"]) == (204, "OPTIONS, POST")


async def test_head_is_a_get_without_its_body() -> None:
    path = "/v1/items?index_id=i&page_size=x"
    async with gateway() as served:
        head, get = await served.client.head(path), await served.client.get(path)

    assert (head.status_code, get.status_code) == (400, 400)
    assert head.content == b""
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    ("accepted", "is_stream"),
    [
        ("application/json, text/event-stream;q=0.5", True),
        ("TEXT/EVENT-STREAM", True),
        ("text/event-stream;q=0, */*", False),
        ("*;;;,", False),
    ],
)
async def test_events_are_sent_to_those_that_accept_them(accepted: str, is_stream: bool) -> None:
    async with gateway() as served:
        response = await served.client.post(SEARCH, json={}, headers=[("accept", accepted)])

    assert response.headers["content-type"].startswith("text/event-stream") is is_stream


@pytest.mark.parametrize(("encoding", "status"), [("identity, identity", 200), ("GZIP", 415)])
async def test_an_encoding_is_compared_without_case(encoding: str, status: int) -> None:
    async with gateway() as served:
        response = await served.client.post(SEARCH, json={}, headers={"content-encoding": encoding})

    assert response.status_code == status


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("HTTP://LOCALHOST/v1/search", 200),
        ("http://elsewhere/v1/search", 400),
    ],
)
async def test_a_target_may_name_the_host(target: str, status: int) -> None:
    """As for a proxy; it must be the one of the header, which was checked."""
    async with gateway() as served:
        answer = await served.exchange(
            f"POST {target} HTTP/1.1\r\n{HEAD}Content-Length: 2\r\n\r\n{{}}".encode()
        )

    assert int(answer.split(b" ", 2)[1]) == status


@pytest.mark.parametrize("sent", [b"hello\r\n\r\n", b"\x16\x03\x01\x02\0"])
async def test_bytes_that_are_not_a_request_get_a_problem(sent: bytes) -> None:
    async with gateway() as served:
        answer = await served.exchange(sent)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"application/problem+json" in head
    assert "send HTTP 1.1" in json.loads(body)["detail"]


@pytest.mark.parametrize(
    ("version", "headers", "body"),
    [
        ("1.0", "Content-Length: 2\r\nAccept: text/event-stream", b"{}"),
        (
            "1.1",
            "Transfer-Encoding: chunked\r\nConnection: close",
            b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
        ),
        ("1.1", "Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close", b"{}"),
    ],
    ids=["proxy_events", "chunked", "expect"],
)
async def test_other_programs_send_a_search_in_other_ways(
    version: str, headers: str, body: bytes
) -> None:
    """nginx in HTTP/1.0, Node in chunks, curl after asking whether to."""
    head = f"POST /v1/search HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json"
    async with gateway() as served:
        answer = await served.exchange(f"{head}\r\n{headers}\r\n\r\n".encode() + body)

    assert b" 200 OK" in answer
    assert ("event-stream" in headers) == (b"event: final" in answer)
    assert len(served.service.requests) == 1
