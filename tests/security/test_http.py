"""What callers can cost the gateway by what they send over HTTP, or do not.

With every change some of each kind; `make test-security` makes 1,000 of each, and 300 slow ones.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import ToldService, search_server
from tests.support.gateway_svc.own_process import GatewayProcess, gateway_process
from tests.support.security.beside import beside
from tests.support.security.run_counts import run_count

COUNT = run_count(4, 1_000)
SLOW_COUNT = run_count(4, 300)
CONCURRENCY = run_count(4, 30)
MOST_GROWN_BYTES = 64 << 20
# What the gateway gives a caller. A busy machine takes seconds for what is sent at once.
PATIENT = {"GATEWAY_HEAD_SECONDS": "60", "GATEWAY_BODY_SECONDS": "60"}
HASTY = {"GATEWAY_HEAD_SECONDS": "1", "GATEWAY_BODY_SECONDS": "1"}
DRIP_SECONDS = 0.05

SEARCH = "/v1/search"
HOST = "Host: localhost\r\n"
TOKEN = "Authorization: Bearer token\r\n"
JSON = "Content-Type: application/json\r\n"
HIDDEN = f"POST /v1/items:remove HTTP/1.1\r\n{HOST}{TOKEN}{JSON}Content-Length: 2\r\n\r\n{{}}"


@dataclass(frozen=True, slots=True)
class Attack:
    """What is sent on one connection, and the only answers to it."""

    pieces: Sequence[bytes]
    expected: frozenset[int]
    """Statuses; 0 is the end of the connection without one."""
    drips: bool = False
    """Whether the last piece is sent again and again while the connection is open."""


def head(method: str = "POST", path: str = SEARCH, headers: str = JSON) -> str:
    """Returns a request's head without its end, with a token."""
    return f"{method} {path} HTTP/1.1\r\n{HOST}{TOKEN}{headers}"


def once(text: str | bytes, *statuses: int) -> Attack:
    """Returns an attack that is sent at once."""
    data = text if isinstance(text, bytes) else text.encode("latin-1")
    return Attack([data], frozenset(statuses))


def smuggling() -> Mapping[str, Attack]:
    """Returns requests that two servers could see the end of in two places."""
    two = {
        "CL.TE": "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
        "TE.CL": "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n",
        "TE.TE": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "TE xchunked": "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "TE tab": "Transfer-Encoding:\tchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "TE folded": "Transfer-Encoding:\r\n chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "TE 1.0": "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "CL twice": "Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
        "CL signed": "Content-Length: -1\r\n\r\n",
        "CL hex": "Content-Length: 0x2\r\n\r\n",
        "CL empty": "Content-Length: \r\n\r\n",
        "CL space": "Content-Length : 2\r\n\r\n{}",
        "chunk size signed": "Transfer-Encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n",
        "chunk size long": "Transfer-Encoding: chunked\r\n\r\n" + "0" * 40 + "2\r\n{}\r\n0\r\n\r\n",
        "chunk end": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
        "bare CR in a name": "X\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
    }
    return {name: once(head() + text + HIDDEN, 400, 0, 501) for name, text in two.items()}


def odd_heads() -> Mapping[str, Attack]:
    """Returns heads that are not requests, too large, or of other protocols."""
    tail, end = "Content-Length: 2\r\n\r\n{}", "Connection: close\r\n\r\n"
    many = "".join(f"x-{number}: a\r\n" for number in range(20_000))
    return {
        "a header of 1 MB": once(head() + "X: " + "x" * 1_000_000 + "\r\n" + tail, 400, 431, 0),
        "20,000 headers": once(head() + many + tail, 400, 431, 0),
        "a path of 1 MB": once(f"GET /{'a' * 1_000_000} HTTP/1.1\r\n{HOST}\r\n", 400, 414, 431, 0),
        "a name with NUL": once(head() + "x\0y: a\r\n" + tail, 400),
        "no host": once(f"GET / HTTP/1.1\r\n{end}", 400),
        "another host": once(f"GET / HTTP/1.1\r\nHost: evil.example\r\n{end}", 421),
        "a whole URL": once(f"GET http://evil.example/ HTTP/1.1\r\n{HOST}{end}", 404, 400),
        "CONNECT": once(f"CONNECT evil.example:443 HTTP/1.1\r\n{HOST}{end}", 404, 405, 400),
        "TRACE": once(f"TRACE {SEARCH} HTTP/1.1\r\n{HOST}{end}", 405),
        "HTTP/0.9": once("GET /\r\n\r\n", 400, 0),
        "HTTP/2": once(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 400, 505, 0),
        "TLS": once(bytes.fromhex("16030100c8010000c40303") + bytes(200), 400, 0),
        "h2c": once(head(headers=f"{JSON}Upgrade: h2c\r\nConnection: upgrade\r\n") + tail, 200),
        "noise": once(random.Random(5).randbytes(4_000) + b"\r\n\r\n", 400, 0),
    }


def paths() -> Mapping[str, Attack]:
    """Returns paths that lead out of what is served, as they are."""
    end = f"{HOST}{TOKEN}Connection: close\r\n\r\n"
    out = [
        "/../../etc/passwd",
        "/docs/../../etc/passwd",
        "/docs/..%2f..%2f..%2fetc%2fpasswd",
        "/docs/%2e%2e/%2e%2e/etc/passwd",
        "/docs/..%5c..%5cetc%5cpasswd",
        "/docs/%252e%252e/settings.py",
        "/docs//etc/passwd",
        "/docs/page.js%00.css",
        "/%c0%ae%c0%ae/etc/passwd",
        "/file:///etc/passwd",
    ]
    return {f"path {path}": once(f"GET {path} HTTP/1.1\r\n{end}", 404, 400) for path in out}


def bodies() -> Mapping[str, Attack]:
    """Returns bodies that are not requests, or that do not come."""
    kinds = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"]
    kinds += ["application/xml", "application/json-patch+json", "application/jsonx", "*/*", ""]
    close = "Connection: close\r\n"
    wrong = {
        f"type {kind or 'none'}": once(
            head(headers=f"{close}Content-Type: {kind}\r\n") + "Content-Length: 2\r\n\r\n{}", 415
        )
        for kind in kinds
    }
    unread = {
        "nested": b"[" * 1_900,
        "nested objects": b'{"query":' * 900,
        "a number of 100,000 digits": b'{"retrieve_k":' + b"9" * 100_000 + b"}",
        "not a number": b'{"min_probability": NaN}',
        "a lone surrogate": b'{"query": "\\ud800"}',
        "no UTF-8": b'{"query": "\xff\xfe"}',
        "a URL": b'{"query": {"image": "http://169.254.169.254/latest/meta-data"}}',
        "a file": b'{"query": {"image": "file:///etc/passwd"}}',
        "not JSON": b"query=dog",
        "a list": b"[]",
        "many values": b'{"query_parts": [' + b"{}," * 100_000 + b"{}]}",
    }
    refused = {
        f"JSON {name}": once(
            (head() + f"{close}Content-Length: {len(body)}\r\n\r\n").encode() + body, 400, 413
        )
        for name, body in unread.items()
    }
    return {**wrong, **refused, "100 GB": once(head() + f"Content-Length: {10**11}\r\n\r\n", 413)}


def slow_requests() -> Mapping[str, Attack]:
    """Returns requests that hold a connection for as long as they may."""
    whole = f"{head()}Content-Length: 100000\r\n\r\n".encode()
    chunked = f"{head()}Transfer-Encoding: chunked\r\n\r\n".encode()
    # The head can be late too, where the machine is busy.
    late = frozenset({504, 0})
    return {
        "nothing": Attack([], frozenset({0})),
        "a head by drips": Attack([b"POST", b"a"], frozenset({0}), drips=True),
        "headers by drips": Attack([head().encode(), b"X: a\r\n"], frozenset({0}), drips=True),
        "a body by drips": Attack([whole, b" "], late, drips=True),
        # Of unknown size, so only some fit in what bodies may hold at once.
        "chunks by drips": Attack([chunked, b"1\r\n \r\n"], late | {429}, drips=True),
        "a body that stops": once(whole + b"{", *late),
    }


def strangers() -> Mapping[str, Attack]:
    """Returns what is refused before a body is read: no token, and pages of other origins."""
    size = "Content-Length: 1000000\r\n\r\n"
    bare = f"POST {SEARCH} HTTP/1.1\r\n{HOST}{JSON}"
    preflight = "Access-Control-Request-Method: POST\r\n\r\n"
    return {
        "no token": once(bare + size, 401),
        "an unknown token": once(bare + "Authorization: Bearer nobody\r\n" + size, 401),
        "two tokens": once(bare + f"Authorization: Bearer nobody\r\n{TOKEN}{size}", 400),
        "another origin": once(head() + "Origin: https://evil.example\r\n" + size, 403),
        "no origin": once(head() + "Origin: null\r\n" + size, 403),
        "an origin like ours": once(
            head() + "Origin: http://localhost.evil.example\r\n" + size, 403
        ),
        "a preflight": once(
            f"OPTIONS {SEARCH} HTTP/1.1\r\n{HOST}Origin: https://evil.example\r\n{preflight}", 403
        ),
    }


ATTACKS = {**smuggling(), **odd_heads(), **paths(), **bodies(), **strangers()}
SLOW_ATTACKS = slow_requests()


@dataclass(frozen=True)
class Door:
    """A gateway in a process of its own, which knows one token, and what stands behind it."""

    gateway: GatewayProcess
    port: int
    service: ToldService

    def resident_bytes(self) -> int:
        """Returns what it holds now."""
        status = Path(f"/proc/{self.gateway.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def asked(self) -> tuple[int, int]:
        """Returns how many searches were passed on, and how many other calls."""
        requests = self.service.requests
        searches = sum(isinstance(each, pb.SearchItemsRequest) for each in requests)
        return searches, len(requests) - searches

    async def outcome(self, attack: Attack) -> int:
        """Makes one connection; returns the status of its answer, 0 without one."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        sending = asyncio.create_task(_send(writer, attack))
        try:
            async with asyncio.timeout(120.0):
                answer = await _answer(reader)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()
        # A second one would be to a request that hid in the first.
        assert answer.count(b"HTTP/1.1 ") <= 1, answer[:2_000]
        assert b"root:" not in answer
        assert b"access-control-allow-origin" not in answer.lower()
        return int(answer.split(b" ", 2)[1]) if answer else 0


async def _send(writer: asyncio.StreamWriter, attack: Attack) -> None:
    """Sends the pieces; where they drip, the last one until the connection ends."""
    for piece in attack.pieces:
        writer.write(piece)
        await writer.drain()
    while attack.drips:
        await asyncio.sleep(DRIP_SECONDS)
        writer.write(attack.pieces[-1])
        await writer.drain()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """Returns what comes until the connection ends, or one whole answer and what is behind it."""
    read = b""
    try:
        while piece := await reader.read(65536):
            read += piece
            start, _, body = read.partition(b"\r\n\r\n")
            lengths = [each for each in start.lower().split(b"\r\n") if b"content-length:" in each]
            if body and lengths and len(body) >= int(lengths[0].partition(b":")[2]):
                # A further answer would be on its way already.
                async with asyncio.timeout(0.05):
                    read += await reader.read(65536)
                break
    except (ConnectionError, TimeoutError):
        pass
    return read


@asynccontextmanager
async def opened(folder: Path, limits: Mapping[str, str]) -> AsyncIterator[Door]:
    """Runs the gateway before a SearchService that finds nothing."""
    tokens = folder / "tokens.toml"
    tokens.write_text(
        f'[tokens.someone]\nsha256 = "{sha256(b"token").hexdigest()}"\n'
        'scopes = ["search", "write"]\nindexes = ["*"]\n'
    )
    settings = {"ACCESS_TOKEN_FILE": str(tokens), **limits}
    async with (
        search_server() as (address, service),
        gateway_process(address, **settings) as gateway,
    ):
        port = (await gateway.event("listening"))["port"]
        await gateway.event("serving")
        reading = asyncio.create_task(_internal_faults(gateway))
        yield Door(gateway, port, service)
        gateway.process.terminate()
        faults = await reading
        assert faults == []


async def _internal_faults(gateway: GatewayProcess) -> list[str]:
    """Reads the log to its end, and returns its lines about faults of ours."""
    assert gateway.process.stderr is not None
    lines = [line async for line in gateway.process.stderr]
    return [each.decode() for each in lines if b"INTERNAL" in each or b"internal fault" in each]


async def good_search(door: Door) -> None:
    """Makes a search as anybody does, on a connection of its own."""
    body = json.dumps({"query": "dog"})
    text = f"{head()}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    assert await door.outcome(once(text)) == 200


async def tried(door: Door, name: str, attack: Attack, count: int = COUNT) -> Counter[int]:
    """Makes the attack from several connections at once; returns how they ended."""
    told: Counter[int] = Counter()
    numbers = iter(range(count))

    async def several() -> None:
        for _ in numbers:
            told[await door.outcome(attack)] += 1

    start_time = time.monotonic()
    await asyncio.gather(*(several() for _ in range(CONCURRENCY)))
    seconds = time.monotonic() - start_time
    print(f"{name}: {dict(told)} in {seconds:.1f} s, {door.resident_bytes() >> 20} MiB")
    assert told.total() == count
    return told


def wrong(
    told: Mapping[str, Counter[int]], attacks: Mapping[str, Attack]
) -> dict[str, Counter[int]]:
    """Returns the attacks that ended in a way that is not expected."""
    return {name: codes for name, codes in told.items() if set(codes) - attacks[name].expected}


async def test_hostile_requests_are_refused_and_cost_little(tmp_path: Path) -> None:
    """Each gets a status that it may have; meanwhile a plain caller is answered."""
    told, good_count = {}, 1
    async with opened(tmp_path, PATIENT) as door:
        await good_search(door)
        before_bytes = door.resident_bytes()
        for name, attack in ATTACKS.items():
            async with beside(lambda: good_search(door)) as others:
                told[name] = await tried(door, name, attack)
            others.check(name)
            good_count += len(others.seconds)
        grown_bytes = door.resident_bytes() - before_bytes
        searches, other_calls = door.asked()

    assert wrong(told, ATTACKS) == {}
    # Nothing that hid in another request was asked, and nothing odd was let through.
    let_through = COUNT * sum(200 in each.expected for each in ATTACKS.values())
    assert (searches, other_calls) == (good_count + let_through, 0)
    assert grown_bytes < MOST_GROWN_BYTES


async def test_slow_requests_end(tmp_path: Path) -> None:
    """However much they send; what they held is given back, so that others are answered."""
    async with opened(tmp_path, HASTY) as door:
        before_bytes = door.resident_bytes()
        told, good_count = {}, 0
        for name, attack in SLOW_ATTACKS.items():
            async with beside(lambda: good_search(door)) as others:
                told[name] = await tried(door, name, attack, SLOW_COUNT)
            others.check(name)
            good_count += len(others.seconds)
        grown_bytes = door.resident_bytes() - before_bytes
        searches, other_calls = door.asked()

    assert wrong(told, SLOW_ATTACKS) == {}
    assert (searches, other_calls) == (good_count, 0)
    assert grown_bytes < MOST_GROWN_BYTES
