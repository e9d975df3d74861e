"""Tests that the proxy disturbs bytes only as it is set to."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.faults.proxy import Direction, Proxy


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """Starts a proxy before an echo service."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with Proxy(server.sockets[0].getsockname()[1], random.Random(1)) as proxy:
        yield proxy
    server.close()
    await server.wait_closed()


class Client:
    """Holds one connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, proxy: Proxy) -> "Client":
        """Opens a connection."""
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    async def echo(self, content: bytes, timeout_seconds: float = 10.0) -> float:
        """Sends bytes, waits for their echo, and returns the time."""
        start_time = time.monotonic()
        async with asyncio.timeout(timeout_seconds):
            self.writer.write(content)
            assert await self.reader.readexactly(len(content)) == content
        return time.monotonic() - start_time

    async def close(self) -> None:
        """Closes the connection."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def test_delays_add_up_and_keep_the_order(proxy: Proxy) -> None:
    """Each direction has its own delay, and jitter does not reorder."""
    client = await Client.connect(proxy)
    proxy.to_service = Direction(delay_seconds=0.1)
    proxy.to_client = Direction(delay_seconds=0.05, jitter_seconds=0.05)

    assert await client.echo(b"a") >= 0.15
    await client.echo(random.Random(1).randbytes(500_000))

    proxy.heal()
    await client.close()


@pytest.mark.parametrize("direction", ["to_service", "to_client"])
async def test_a_black_hole_swallows_one_way(proxy: Proxy, direction: str) -> None:
    """The connection stays open without answers; after healing, lost bytes cause a reset."""
    client = await Client.connect(proxy)
    await client.echo(b"before")
    getattr(proxy, direction).is_silent = True

    with pytest.raises(TimeoutError):
        await client.echo(b"lost", timeout_seconds=0.2)

    proxy.heal()
    with pytest.raises(ConnectionResetError):
        await client.reader.readexactly(1)
    await client.close()
    client = await Client.connect(proxy)
    await client.echo(b"after")
    await client.close()


async def test_a_cut_resets_the_connection(proxy: Proxy) -> None:
    """The client gets RST; a new connection works, unless connections are refused."""
    client = await Client.connect(proxy)
    await client.echo(b"before")

    proxy.refuse()
    with pytest.raises(ConnectionResetError):
        await client.reader.readexactly(1)
    await client.close()
    refused = await Client.connect(proxy)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await refused.reader.readexactly(1)
    await refused.close()

    proxy.heal()
    client = await Client.connect(proxy)
    await client.echo(b"after")
    await client.close()
