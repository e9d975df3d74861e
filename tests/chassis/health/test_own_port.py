"""health.own_port: what a service's own port answers, asked as a stranger would."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import trustme

from tandem.chassis.calls.channels import SERVER_OPTIONS
from tandem.chassis.calls.credentials import server_credentials, server_options
from tandem.chassis.health.health import Health
from tandem.chassis.health.own_port import OwnPort, PortState
from tandem.chassis.serve.server import make_server
from tandem.chassis.tls import Identity
from tests.support.chassis.authority import Files


@asynccontextmanager
async def served(identity: Identity | None = None) -> AsyncIterator[tuple[grpc.aio.Server, int]]:
    """Serves health alone on a free port."""
    options = server_options(SERVER_OPTIONS, identity)
    server = await make_server("own", Health("own", []), lambda _: None, [], options=options)
    if identity is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", server_credentials(identity))
    await server.start()
    try:
        yield server, port
    finally:
        await server.stop(None)


async def state_of(own_port: OwnPort) -> PortState:
    """Asks in a thread, as the door does: the server is in this loop."""
    return await asyncio.to_thread(own_port.state)


async def test_a_server_answers_until_it_has_ended() -> None:
    times = iter(range(0, 1_000, 10))
    async with served() as (server, port):
        own_port = OwnPort(f"0.0.0.0:{port}", clock=lambda: float(next(times)))
        running = await state_of(own_port)
        lives = await asyncio.to_thread(own_port.has_answered_within, 30.0)

        await server.stop(None)
        ended = await state_of(own_port)
        lives_on = await asyncio.to_thread(own_port.has_answered_within, 1e9)

    assert (running, lives) == (PortState.ANSWERED, True)
    assert (ended, lives_on) == (PortState.CLOSED, False)


@pytest.mark.parametrize("name", ["localhost", "elsewhere.example"])
async def test_a_certificate_of_another_name_is_accepted(tmp_path: Path, name: str) -> None:
    files = Files(tmp_path / "own")
    files.write(trustme.CA(), name)
    async with served(files.identity()) as (_, port):
        assert await state_of(OwnPort(f"127.0.0.1:{port}", files.identity())) is PortState.ANSWERED


async def test_a_stranger_that_speaks_no_tls_is_hung_up_on(tmp_path: Path) -> None:
    """The control: it is the service that is asked, not the socket."""
    files = Files(tmp_path / "own")
    files.write(trustme.CA(), "localhost")
    async with served(files.identity()) as (_, port):
        assert await state_of(OwnPort(f"127.0.0.1:{port}")) is not PortState.ANSWERED


def test_a_silent_server_is_given_time() -> None:
    now = [100.0]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        own_port = OwnPort(address, clock=lambda: now[0], timeout_seconds=0.1)

        assert own_port.state() is PortState.SILENT
        assert own_port.has_answered_within(30)
        now[0] += 31
        assert not own_port.has_answered_within(30)


def test_many_questions_in_a_second_are_one() -> None:
    now = [100.0]
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        own_port = OwnPort(address, clock=lambda: now[0], timeout_seconds=0.1)
        for _ in range(20):
            own_port.state()
        silent.settimeout(0.2)
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()
