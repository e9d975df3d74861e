"""gateway_svc.edge and gateway_svc.connection: strangers, slow clients, and other origins."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest

from gateway_svc import edge
from gateway_svc.connection import ConnectionLimits
from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tandem.v1 import search_service_pb2 as pb
from tests.support.gateway_svc.running import SEARCH, gateway

pytestmark = pytest.mark.usefixtures("each_shape")

POST = f"POST {SEARCH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
TOKENS = f"""
[tokens.searcher]
sha256 = "{sha256(b"searcher").hexdigest()}"
scopes = ["search"]
indexes = ["*"]

[tokens.writer]
sha256 = "{sha256(b"writer").hexdigest()}"
scopes = ["write"]
indexes = ["*"]
"""


def status(answer: bytes) -> int:
    """Returns the status of a raw answer."""
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        b"Content-Length: +2\r\n\r\n{}",
        b"Content-Length: 2, 3\r\n\r\n{} ",
        b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2x\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Host: elsewhere\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=[
        "both", "two_lengths", "signed", "list", "gzip", "twice", "chunk_size", "space",
        "two_hosts", "compressed", "nul",
    ],
)  # fmt: skip
async def test_framing_that_two_servers_could_read_in_two_ways_is_refused(
    request_bytes: bytes,
) -> None:
    """With what follows on the connection, so that no second request can hide in a first."""
    hidden = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with gateway() as served:
        answer = await served.exchange(POST.encode() + request_bytes + hidden)

    assert status(answer) in (400, 415, 501)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert not served.service.requests


async def test_an_incomplete_head_does_not_hold_a_connection() -> None:
    async with gateway(head_seconds=0.3) as served:
        closed = await asyncio.gather(served.exchange(b""), served.exchange(POST.encode()))

    assert closed == [b"", b""]


async def test_the_second_request_of_a_connection_has_its_time_too() -> None:
    limits = ConnectionLimits(8, 8, head_seconds=60.0, idle_seconds=60.0)
    async with gateway(limits=limits) as served:
        reader, writer = await served.send(POST.encode() + b"Content-Length: 2\r\n\r\n{}")
        await reader.readuntil(b"{}")
        limits.head_seconds = 0.1
        writer.write(POST.encode())
        async with asyncio.timeout(60.0):
            rest = await reader.read()
        writer.close()

    assert rest == b""


async def test_a_body_that_does_not_arrive_times_out() -> None:
    async with gateway(body_seconds=0.2) as served:
        answer = await served.answer_to(POST.encode() + b"Content-Length: 50\r\n\r\n{")

    assert status(answer) == 504
    assert b"DEADLINE_EXCEEDED" in answer or b"deadline_exceeded" in answer


async def test_an_unread_answer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "LEAST_BYTES_A_SECOND", 1_000_000)
    large = pb.SearchItemsResponse(items=[pb.RankedItem(item_id="x" * 30_000_000)])

    asked = asyncio.Event()

    async def answer(_: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        asked.set()
        return large

    async with gateway(answer, send_seconds=0.1) as served:
        fine = await served.search({})
        asked.clear()
        monkeypatch.setattr(edge, "LEAST_BYTES_A_SECOND", 10**12)
        reader, writer = await served.send(POST.encode() + b"Content-Length: 2\r\n\r\n{}")
        transport = cast(asyncio.Transport, writer.transport)
        transport.pause_reading()
        await asked.wait()
        await served.until_no_request()
        transport.resume_reading()
        async with asyncio.timeout(60.0):
            read = await drained(reader)
        writer.close()

    assert len(fine.content) > 30_000_000
    assert read < 30_000_000


async def drained(reader: asyncio.StreamReader) -> int:
    """Returns how many bytes come before the connection breaks."""
    count = 0
    try:
        while piece := await reader.read(1 << 20):
            count += len(piece)
    except ConnectionError:
        pass
    return count


@pytest.mark.parametrize("body_size", [70_000_000])
async def test_an_oversized_body_is_refused_before_it_arrives(body_size: int) -> None:
    async with gateway() as served:
        answer = await served.answer_to(
            POST.encode() + f"Content-Length: {body_size}\r\n\r\n".encode()
        )

    assert status(answer) in (400, 413)
    assert not served.service.requests


async def test_a_body_without_a_size_is_counted_as_it_arrives() -> None:
    pieces = b"".join(b"8000\r\n" + b" " * 0x8000 + b"\r\n" for _ in range(8))
    request = POST.replace("SearchItems", "RemoveIndex").encode()
    async with gateway() as served:
        answer = await served.answer_to(request + b"Transfer-Encoding: chunked\r\n\r\n" + pieces)

    assert status(answer) == 413


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("size", [17_000])
async def test_large_headers_are_refused(size: int, is_whole: bool) -> None:
    """16 KiB in all, also where they come in one piece, which h11 does not count."""
    end = b"\r\n\r\n" if is_whole else b""
    async with gateway() as served:
        answer = await served.exchange(POST.encode() + b"X: " + b"x" * size + end)

    assert status(answer) == 431
    assert b"the first line and headers take over 16,384 bytes; send fewer" in answer
    assert not served.service.requests


@pytest.mark.parametrize(
    "path",
    [
        "/../settings.py",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/index.html%00.js",
        "/%ff",
        "/README.md",
    ],
)
async def test_no_path_leads_out_of_the_console(path: str) -> None:
    async with gateway() as served:
        answer = await served.exchange(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        start = await served.client.get("/")

    assert status(answer) in (400, 404)
    assert start.status_code == 200
    assert "text/html" in start.headers["content-type"]


async def test_pages_of_other_origins_may_not_call() -> None:
    async with gateway() as served:
        own = f"http://127.0.0.1:{served.port}"
        other = await served.search({}, origin="https://evil.example")
        same = await served.search({}, origin=own)
        preflight = await served.client.options(
            SEARCH,
            headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
        )

    assert (other.status_code, same.status_code, preflight.status_code) == (403, 200, 403)
    assert len(served.service.requests) == 1
    for response in (other, same, preflight):
        assert not [name for name in response.headers if name.startswith("access-control")]


async def test_an_origin_that_is_named_may_call() -> None:
    """With a preflight, as browsers do, for whatever headers its library sends."""
    origin = "https://app.example"
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
    }
    async with gateway(origins=(origin,)) as served:
        preflight = await served.client.options(SEARCH, headers=asked)
        response = await served.search({}, origin=origin)

    assert (preflight.status_code, response.status_code) == (204, 200)
    assert response.headers["access-control-allow-origin"] == origin
    allowed = preflight.headers["access-control-allow-headers"]
    assert allowed == asked["access-control-request-headers"]
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "Access-Control-Request-Headers" in preflight.headers["vary"]
    assert "access-control-allow-credentials" not in response.headers


async def test_a_page_cannot_reach_this_machine_by_dns_rebinding() -> None:
    """DNS rebinding: the name is not one of loopback's."""
    async with gateway() as served:
        strange = await served.search({}, host="rebound.example")
        local = await served.search({}, host=f"localhost:{served.port}")
        six = await served.search({}, host=f"[::1]:{served.port}")

    assert (strange.status_code, local.status_code, six.status_code) == (421, 200, 200)


async def test_a_cross_site_form_is_refused() -> None:
    """What browsers send without asking has another content type."""
    async with gateway() as served:
        answers = [
            await served.client.post(path, content=b"{}", headers={"content-type": "text/plain"})
            for path in (SEARCH, "/v1/search")
        ]

    assert [each.status_code for each in answers] == [415, 415]
    assert not served.service.requests


async def test_pages_load_nothing_from_elsewhere() -> None:
    async with gateway() as served:
        page = await served.client.get("/")

    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"


async def test_the_longest_idle_connection_gives_way_to_a_new_one() -> None:
    body = POST.encode() + b"Content-Length: 2\r\n\r\n{}"
    async with gateway(max_connection_count_by_host=3) as served:
        held = [await served.send(b"") for _ in range(3)]
        reader, writer = held[0]
        writer.write(body)
        await reader.readuntil(b"{}")
        answers = [await served.answer_to(body)]
        closed = await held[1][0].read()
        for reader, writer in (held[0], held[2]):
            writer.write(body)
            answers.append(await reader.readuntil(b"\r\n"))
        for _, writer in held:
            writer.close()

    assert [status(each) for each in answers] == [200] * 3
    assert closed == b""


async def test_connections_of_one_host_exclude_no_other() -> None:
    body = POST.encode() + b"Content-Length: 2\r\n\r\n{}"
    async with gateway(max_connection_count=3) as served:
        other = await asyncio.open_connection("127.0.0.1", served.port, local_addr=("127.0.0.2", 0))
        held = [await served.send(b"") for _ in range(6)]
        other[1].write(body)
        answer = await other[0].readuntil(b"\r\n")
        closed = [await reader.read() for reader, _ in held[:4]]
        for _, writer in (other, *held):
            writer.close()

    assert status(answer) == 200
    assert closed == [b""] * 4


async def test_a_connection_that_is_being_answered_is_not_closed() -> None:
    may_end, began = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(_: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        began.release()
        await may_end.wait()
        return pb.SearchItemsResponse()

    body = POST.encode() + b"Content-Length: 2\r\n\r\n{}"
    async with gateway(slow, max_connection_count_by_host=2) as served:
        held = [await served.send(body) for _ in range(2)]
        for _ in held:
            await began.acquire()
        refused = await served.exchange(body)
        may_end.set()
        answers = [await reader.readuntil(b"\r\n") for reader, _ in held]
        for _, writer in held:
            writer.close()

    assert refused == b""
    assert [status(each) for each in answers] == [200, 200]


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer writer", 403),
        ("Bearer searcher", 200),
    ],
)
async def test_tokens_are_read_before_the_body(
    tmp_path: Path, authorization: str | None, expected: int
) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(TOKENS)
    sent = "" if authorization is None else f"Authorization: {authorization}\r\n"
    body = b"{}" if expected == 200 else b""
    length = 2 if expected == 200 else 1_000_000
    async with gateway(guard=Guard(TokenFile(path))) as served:
        answer = await served.answer_to(
            f"{POST}{sent}Content-Length: {length}\r\nConnection: close\r\n\r\n".encode() + body
        )

    assert status(answer) == expected
    if expected == 200:
        assert served.service.metadata[0]["authorization"] == authorization
    else:
        assert not served.service.requests


@pytest.mark.parametrize(
    "value",
    [b"Basic \xfcn\xef", b"Bearer a\tb", b"Bearer " + b"a" * 4_097],
)
async def test_credentials_that_grpc_does_not_carry_are_refused(value: bytes) -> None:
    async with gateway() as served:
        refused = await served.answer_to(
            POST.encode() + b"Authorization: " + value + b"\r\nContent-Length: 2\r\n\r\n{}"
        )
        longest = await served.answer_to(
            f"{POST}Authorization: Bearer {'a' * 4_096}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        )

    assert (status(refused), status(longest)) == (401, 200)
    assert b"its authorization header has " in refused
    assert value[7:] not in refused


@pytest.mark.parametrize("name", ["Authorization", "X-Request-Timeout-Ms"])
async def test_a_header_that_says_one_thing_may_not_be_there_twice(name: str) -> None:
    """A proxy may have checked the first, and the last may be what counts."""
    twice = f"{name}: 1\r\n{name.upper()}: 2\r\n"
    async with gateway() as served:
        refused = await served.answer_to(f"{POST}{twice}Content-Length: 2\r\n\r\n{{}}".encode())
        accepted = await served.answer_to(
            f"{POST}Accept: a/b\r\nAccept: c/d\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        )

    assert (status(refused), status(accepted)) == (400, 200)
    assert f"send one {name.lower()} header".encode() in refused
    assert len(served.service.requests) == 1


async def test_requests_over_capacity_get_a_retry_delay() -> None:
    may_end = asyncio.Event()
    began = asyncio.Event()

    async def slow(_: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        began.set()
        await may_end.wait()
        return pb.SearchItemsResponse()

    async with gateway(slow, max_inflight_count=1) as served:
        first = asyncio.create_task(served.search({}))
        await began.wait()
        second = await served.search({})
        may_end.set()
        answered = await first

    assert (answered.status_code, second.status_code) == (200, 429)
    assert second.json()["code"] == "resource_exhausted"
    assert int(second.headers["retry-after"]) >= 1


async def test_a_disconnect_cancels_the_search() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(_: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return pb.SearchItemsResponse()

    async with gateway(slow) as served:
        _, writer = await served.send(POST.encode() + b"Content-Length: 2\r\n\r\n{}")
        await began.wait()
        writer.close()
        async with asyncio.timeout(20.0):
            await ended.wait()


async def test_the_callers_deadline_is_kept() -> None:
    async def never(_: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        await asyncio.Event().wait()
        return pb.SearchItemsResponse()

    async with gateway(never) as served:
        answers = [
            await served.search({}, **{name: value})
            for name, value in (
                ("x_request_timeout_ms", "50"),
                ("connect_timeout_ms", "50"),
                ("grpc_timeout", "50m"),
            )
        ]

    assert [each.status_code for each in answers] == [504] * 3
