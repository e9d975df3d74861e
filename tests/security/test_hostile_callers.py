"""What callers can cost a service by what they send, or do not: with a token and without.

With every change some calls of each kind; `make test-security` makes 1,000 of each.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import grpc
import pytest
from grpc.aio import Metadata
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.calls.status import REASON_KEY
from tandem.client.calls.server_status import ServerStatus
from tandem.v1 import attribute_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.chassis.contract import OWN_ERROR
from tests.support.security.beside import beside
from tests.support.security.run_counts import run_count

COUNT = run_count(10, 1_000)
MOST_GROWN_BYTES = 64 << 20
# The made-up shard reads the filters in the same process.
MOST_GROWN_BY_LARGE_BYTES = 2 * MOST_GROWN_BYTES

SERVICE = "/tandem.v1.SearchService/"
HEALTH = "/grpc.health.v1.Health/"
TOKEN = (("authorization", "Bearer token"),)


@dataclass(frozen=True, slots=True)
class Attack:
    """Calls of one kind."""

    path: str
    body: bytes | None
    """None sends no message, and waits."""
    expected: frozenset[str]
    """Reasons, or codes where there is none."""
    metadata: tuple[tuple[str, str], ...] = ()
    compression: grpc.Compression = grpc.Compression.NoCompression
    concurrency: int = field(default=20)
    most_grown_bytes: int = MOST_GROWN_BYTES


def attacks() -> Mapping[str, Attack]:
    """Returns one of every kind."""
    values = [attribute_pb2.AttributeValue(integer=number) for number in range(20_000)]
    many_values = pb.SearchItemsRequest(
        index_id="scenes",
        query={"text": "1"},
        filter={"one_of": {"name": "a", "values": values}},
    ).SerializeToString()
    legal = pb.SearchItemsRequest(
        index_id="scenes",
        query={"text": "1"},
        filter={
            "all_of": {
                "filters": [{"one_of": {"name": "a", "values": values[:900]}} for _ in range(11)]
            }
        },
    ).SerializeToString()
    searches, items = b"\x0a\x00" * 4_000_000, b"\x0a\x06scenes" + b"\x12\x00" * 1_000_000
    stranger, unknown = frozenset({"UNAUTHENTICATED"}), (("authorization", "Bearer nobody"),)
    size, count = frozenset({"MESSAGE_TOO_LARGE"}), frozenset({"BATCH_SIZE_OUT_OF_RANGE"})
    gzip = grpc.Compression.Gzip
    return {
        "a bomb of no token": Attack(
            f"{SERVICE}BatchSearchItems", searches, stranger | {"UNIMPLEMENTED"}, (), gzip
        ),
        "8 MB of no token": Attack(f"{SERVICE}BatchSearchItems", searches, stranger),
        "8 MB of an unknown token": Attack(
            f"{SERVICE}BatchSearchItems", searches, stranger, unknown
        ),
        "items of no token": Attack(f"{SERVICE}IngestItems", items, stranger),
        "no message, no token": Attack(f"{SERVICE}SearchItems", None, stranger),
        "a stream without a message, no token": Attack(f"{SERVICE}IngestItems", None, stranger),
        # The process may give up unfinished ones as it grows: decision 54.
        "a large probe": Attack(
            f"{HEALTH}Check",
            b"\x0a\x80\x80\x80\x01" + bytes(2 << 20),
            size | {"UNIMPLEMENTED"},
        ),
        "a bomb of a token": Attack(
            f"{SERVICE}BatchSearchItems", searches, frozenset({"UNIMPLEMENTED"}), TOKEN, gzip
        ),
        "empty searches": Attack(f"{SERVICE}BatchSearchItems", searches, count, TOKEN),
        "empty items": Attack(f"{SERVICE}IngestItems", items, count | {"OVERLOADED"}, TOKEN),
        "empty parts": Attack(f"{SERVICE}SearchItems", b"\x62\x00" * 1_000_000, size, TOKEN),
        "unknown fields": Attack(f"{SERVICE}SearchItems", b"\xf8\x3f\x00" * 900_000, size, TOKEN),
        "many values": Attack(
            f"{SERVICE}SearchItems", many_values, size | {"FILTER_INVALID"}, TOKEN
        ),
        "as many values as there may be": Attack(
            f"{SERVICE}SearchItems",
            legal,
            frozenset({"OK", "INDEX_NOT_FOUND", "OVERLOADED"}),
            TOKEN,
            most_grown_bytes=MOST_GROWN_BY_LARGE_BYTES,
        ),
        "as many values as there may be, all at once": Attack(
            f"{SERVICE}SearchItems",
            legal,
            # A connection has fewer calls, and gRPC refuses more.
            frozenset({"OK", "INDEX_NOT_FOUND", "OVERLOADED", "UNAVAILABLE"}),
            TOKEN,
            concurrency=1_000,
            most_grown_bytes=MOST_GROWN_BY_LARGE_BYTES,
        ),
    }


class Door:
    """A process of its own, as others see it."""

    def __init__(self, token_path: Path, encoding_seconds: float = 0.0) -> None:
        command = [sys.executable, "-m", "tests.support.security.hostile_door", str(token_path)]
        with (token_path.parent / "door.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(encoding_seconds)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def resident_bytes(self) -> int:
        """Returns what it holds now."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Knows one token, which may all but administer."""
    path = tmp_path_factory.mktemp("door") / "tokens.toml"
    path.write_text(
        f'[tokens.someone]\nsha256 = "{sha256(b"token").hexdigest()}"\n'
        'scopes = ["search", "write"]\nindexes = ["*"]\n'
    )
    opened = Door(path)
    yield opened
    opened.stop()


async def outcome(channel: grpc.aio.Channel, attack: Attack) -> str:
    """Returns how one call ends, by the server's word."""

    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    method = channel.stream_stream(
        attack.path, request_serializer=bytes, response_deserializer=bytes
    )
    call = method(
        nothing() if attack.body is None else iter([attack.body]),
        metadata=attack.metadata,
        compression=attack.compression,
        timeout=120,
    )
    status = ServerStatus(call)
    try:
        code = await call.code()
        if await call.details() == OWN_ERROR:
            found = await status.hidden_by(
                grpc.aio.AioRpcError(code, Metadata(), Metadata(), OWN_ERROR)
            )
            return str(dict(found.trailing_metadata()).get(REASON_KEY, found.code().name))
        return str(dict(await call.trailing_metadata()).get(REASON_KEY, code.name))
    finally:
        call.cancel()


async def live(address: str) -> None:
    """Asks for liveness, on a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        asked = health_pb2.HealthCheckRequest(service="liveness")
        await health_pb2_grpc.HealthStub(channel).Check(asked, timeout=60)


async def settled_bytes(door: Door, before_bytes: int, attack: Attack) -> int:
    """Returns what the door holds, once what it was given is given back, or has had the time."""
    for _ in range(100):
        if door.resident_bytes() - before_bytes < attack.most_grown_bytes:
            break
        await asyncio.sleep(0.1)
    return door.resident_bytes()


@pytest.mark.parametrize("name", attacks())
async def test_hostile_calls_are_refused_and_cost_little(door: Door, name: str) -> None:
    """The error names why; the memory they took is freed, and liveness is reported throughout."""
    attack = attacks()[name]
    told: Counter[str] = Counter()
    before_bytes = door.resident_bytes()
    most_bytes = before_bytes

    async def several(channel: grpc.aio.Channel, numbers: Iterator[int]) -> None:
        nonlocal most_bytes
        for _ in numbers:
            told[await outcome(channel, attack)] += 1
            most_bytes = max(most_bytes, door.resident_bytes())

    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    start_time = time.monotonic()
    async with (
        beside(lambda: live(door.address)) as others,
        grpc.aio.insecure_channel(door.address, options=options) as channel,
    ):
        numbers = iter(range(COUNT))
        await asyncio.gather(*(several(channel, numbers) for _ in range(attack.concurrency)))
    seconds = time.monotonic() - start_time
    grown_bytes = await settled_bytes(door, before_bytes, attack) - before_bytes
    print(
        f"{name}: {dict(told)} in {seconds:.1f} s, {grown_bytes >> 20} MiB grown, "
        f"{(most_bytes - before_bytes) >> 20} at most"
    )
    assert set(told) <= attack.expected
    assert grown_bytes < attack.most_grown_bytes
    others.check(name)
