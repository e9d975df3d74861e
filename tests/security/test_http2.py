"""HTTP/2 itself, under our services: whatever frames come, the next caller is answered.

With every change some hundred; `make test-security` sends a hundred thousand.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from tandem.chassis.calls.channels import open_channel
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.chassis.serve.test_serve import Service, started
from tests.support.chassis.raw_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    block,
    call_headers,
    ended_streams,
    frame,
    opened,
)
from tests.support.fuzz.run_counts import fuzz_seed
from tests.support.security.beside import beside
from tests.support.security.http2_attacks import Attack
from tests.support.security.http2_floods import FLOODS, flood
from tests.support.security.run_counts import is_full, run_count

FRAME_COUNT = run_count(400, 100_000)
CONNECTION_FRAME_COUNT = 20
# Of a process of about 60 MiB; what a leak of 1 kB a frame would amount to in full.
GROWTH_BYTES = 100 * 2**20
FLOOD_SECONDS = 15.0 if is_full() else 0.5


@pytest.fixture
async def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """A service that serves callers with a token, and whose log is read."""
    path = tmp_path / "tokens.toml"
    path.write_text(
        f'[tokens.someone]\nsha256 = "{sha256(b"token").hexdigest()}"\n'
        'scopes = ["search"]\nindexes = ["*"]\n'
    )
    monkeypatch.setenv("ACCESS_TOKEN_FILE", str(path))
    async with started(tmp_path) as service:
        await service.event("serving")
        reading = asyncio.create_task(service.end())
        yield service
        service.process.terminate()
        assert await reading == 0


def attacked(port: int, dice: random.Random) -> int:
    """Sends one connection's frames, all at once or in pieces; returns how many bytes came back."""
    attack = Attack(dice)
    sent = attack.frames(CONNECTION_FRAME_COUNT)
    piece_bytes = dice.choice((len(sent), len(sent), 1_000))
    received_count = 0
    with opened(port) as connection, contextlib.suppress(OSError):
        for start in range(0, len(sent), piece_bytes):
            connection.sendall(sent[start : start + piece_bytes])
        if attack.is_wild:
            connection.shutdown(socket.SHUT_WR)
        # A call that is hung up on is cancelled before it has a result.
        connection.settimeout(dice.choice((0.0, 0.05)) if attack.is_wild else 0.05)
        while part := connection.recv(65_536):
            received_count += len(part)
    return received_count


def called_by_hand(port: int) -> bool:
    """Makes a call of the frames that attacks are made of; returns whether it was answered."""
    headers = block(call_headers(b"/tandem.v1.SearchService/SearchItems"))
    with opened(port, timeout_seconds=60) as connection:
        connection.sendall(
            frame(HEADERS, END_HEADERS, 1, headers) + frame(DATA, END_STREAM, 1, b"\0" * 5)
        )
        return ended_streams(connection, 1, timeout_seconds=60) == {1}


def resident_bytes(pid: int) -> int:
    """Returns the memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


async def searched(service: Service) -> pb.SearchItemsResponse:
    """Calls as any client does, by a channel of its own."""
    async with open_channel(f"127.0.0.1:{service.port}") as channel:
        stub = SearchServiceStub(channel)
        answer: pb.SearchItemsResponse = await stub.SearchItems(
            pb.SearchItemsRequest(index_id="0"),
            timeout=60,
            metadata=(("authorization", "Bearer token"),),
        )
        return answer


async def test_others_are_served_during_a_flood(lone: Service) -> None:
    """New clients that watch health first, as ours do."""
    await searched(lone)
    for name in FLOODS:
        async with beside(lambda: searched(lone)) as others:
            count = await asyncio.to_thread(flood, lone.port, name, FLOOD_SECONDS)
        others.check(f"{name}, {count:,} in {FLOOD_SECONDS} s")


@pytest.mark.timeout(900)
async def test_no_frames_end_a_service_or_fill_it(tmp_path: Path) -> None:
    """It answers a call as before, keeps its memory, and leaves by a signal as it should."""
    dice = random.Random(fuzz_seed())
    async with started(tmp_path) as service:
        await service.event("serving")
        reading = asyncio.create_task(service.end())  # or its log would fill the pipe
        assert await asyncio.to_thread(called_by_hand, service.port)
        sizes: list[int] = []
        received_count = 0
        async with beside(lambda: searched(service)) as others:
            for number in range(FRAME_COUNT // CONNECTION_FRAME_COUNT):
                received_count += await asyncio.to_thread(attacked, service.port, dice)
                if number % 10 == 9:
                    assert service.process.returncode is None, (number, service.events[-3:])
                    assert await searched(service) == pb.SearchItemsResponse()
                    sizes.append(resident_bytes(service.process.pid))
        others.check("frames of every kind")
        assert await searched(service) == pb.SearchItemsResponse()
        service.process.terminate()
        async with asyncio.timeout(60):
            code = await reading

    # That frames like these are heard: one call by hand came through, next to those by a channel.
    served = Counter(each["code"] for each in service.events if each["event"] == "call served")
    assert served["OK"] >= len(sizes) + 2
    assert not served.keys() & {"INTERNAL", "UNKNOWN"}
    assert code == 0
    # The first tenth fills caches and pools.
    settled = sizes[len(sizes) // 10]
    assert max(sizes) - settled < GROWTH_BYTES, [size >> 20 for size in sizes]
    print(
        {
            "seed": fuzz_seed(),
            "frames": FRAME_COUNT,
            "served": dict(served),
            "received": received_count,
            "MiB": [settled >> 20, max(sizes) >> 20],
        }
    )
