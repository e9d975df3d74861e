"""tls_proxy: certificates before a server that has none, and that may change."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest
import trustme

from tandem.chassis.calls.channels import call, open_channel
from tandem.chassis.tls import Identity, TlsSettings
from tandem.chassis.tls_proxy import TlsProxy
from tandem.errors import ServiceUnavailable, TandemError
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceStub,
)
from tests.support.chassis.authority import Files
from tests.support.chassis.open_door import address


async def search(channel: grpc.aio.Channel) -> None:
    """Makes one call; raises a TandemError."""
    stub = SearchServiceStub(channel)
    request = pb.SearchItemsRequest()
    await call(stub.SearchItems, request, service="scripted", timeout_seconds=60.0)


@asynccontextmanager
async def proxy_before(to: str, identity: Identity) -> AsyncIterator[TlsProxy]:
    """Runs a proxy before the address."""
    proxy = TlsProxy(identity, "127.0.0.1", 0, ("127.0.0.1", int(to.rpartition(":")[2])))
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def proxy_files(tmp_path: Path, authority: trustme.CA) -> Files:
    files = Files(tmp_path / "proxy")
    files.write(authority)
    return files


@pytest.fixture
def caller_files(tmp_path: Path, authority: trustme.CA) -> Files:
    files = Files(tmp_path / "caller")
    files.write(authority, "encoder")
    return files


def named(files: Files, *names: str) -> Identity:
    """Returns the identity of one that lets in those names alone."""
    settings = files.settings
    return Identity(
        TlsSettings(
            certificate_file=settings.certificate_file,
            key_file=settings.key_file,
            authority_file=settings.authority_file,
            peer_names=names,
        )
    )


async def shown_serial(port: int, files: Files) -> int:
    """Returns the serial number of the certificate that the port shows now."""
    context = files.identity().caller_context()
    context.load_verify_locations(files.settings.authority_file)
    context.verify_mode = ssl.CERT_REQUIRED
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert()
        return int(shown["serialNumber"], 16)
    finally:
        writer.close()


async def test_calls_pass(proxy_files: Files, caller_files: Files) -> None:
    async with (
        address() as to,
        proxy_before(to, named(proxy_files, "encoder")) as proxy,
        open_channel(f"localhost:{proxy.port}", caller_files.identity()) as channel,
    ):
        for _ in range(3):
            await search(channel)


async def test_strangers_are_refused(
    tmp_path: Path, proxy_files: Files, authority: trustme.CA
) -> None:
    stranger = Files(tmp_path / "stranger")
    stranger.write(trustme.CA(), "encoder", trusted=(authority,))
    other_name = Files(tmp_path / "other_name")
    other_name.write(authority, "orchestrator")
    roots = grpc.ssl_channel_credentials(authority.cert_pem.bytes())

    async with (
        address() as to,
        proxy_before(to, named(proxy_files, "encoder")) as proxy,
    ):
        shown = f"localhost:{proxy.port}"
        channels = {
            "plain text": open_channel(shown),
            "no certificate": grpc.aio.secure_channel(shown, roots),
            "another authority": open_channel(shown, stranger.identity()),
            "another name": open_channel(shown, other_name.identity()),
        }
        for name, channel in channels.items():
            async with channel:
                with pytest.raises(TandemError) as raised:
                    await search(channel)
            assert type(raised.value) is ServiceUnavailable, name


async def test_a_rotation_ends_no_connection(
    proxy_files: Files, caller_files: Files, authority: trustme.CA
) -> None:
    async with (
        address() as to,
        proxy_before(to, proxy_files.identity()) as proxy,
        open_channel(f"localhost:{proxy.port}", caller_files.identity()) as channel,
    ):
        await search(channel)
        before = await shown_serial(proxy.port, caller_files)
        assert await shown_serial(proxy.port, caller_files) == before

        proxy_files.write(authority)

        await search(channel)
        assert await shown_serial(proxy.port, caller_files) != before


async def test_an_authority_that_is_withdrawn_opens_nothing(
    proxy_files: Files, caller_files: Files, authority: trustme.CA
) -> None:
    """A context that had grown by the new authority would still trust the one before."""
    async with (
        address() as to,
        proxy_before(to, proxy_files.identity()) as proxy,
    ):
        proxy_files.write(authority, trusted=(trustme.CA(),))

        async with open_channel(f"localhost:{proxy.port}", caller_files.identity()) as channel:
            with pytest.raises(ServiceUnavailable):
                await search(channel)


async def test_silent_connections_do_not_block_others(
    proxy_files: Files, caller_files: Files
) -> None:
    async with (
        address() as to,
        proxy_before(to, proxy_files.identity()) as proxy,
    ):
        silent = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(40)]
        try:
            async with open_channel(f"localhost:{proxy.port}", caller_files.identity()) as channel:
                await search(channel)
        finally:
            for each in silent:
                each.close()


@pytest.mark.parametrize("turns", [0, 2])
async def test_a_connection_that_arrives_during_close_is_closed(
    proxy_files: Files, turns: int
) -> None:
    async with proxy_before("127.0.0.1:1", proxy_files.identity()) as proxy:
        await asyncio.sleep(0.01)  # it waits for connections
        caller = socket.create_connection(("127.0.0.1", proxy.port))
        for _ in range(turns):
            await asyncio.sleep(0)

    with caller, suppress(ConnectionResetError):
        caller.settimeout(60.0)
        assert caller.recv(1) == b""
    gc.collect()


async def test_a_server_that_is_away_is_unavailable(
    proxy_files: Files, caller_files: Files
) -> None:
    async with (
        proxy_before("127.0.0.1:1", proxy_files.identity()) as proxy,
        open_channel(f"localhost:{proxy.port}", caller_files.identity()) as channel,
    ):
        with pytest.raises(ServiceUnavailable):
            await search(channel)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"TLS_KEY_FILE": ""}, "TLS_KEY_FILE"),
        ({"TLSPROXY_ADDRESS": "7440"}, "'7440' is not an address"),
    ],
)
def test_a_wrong_setting_is_named(proxy_files: Files, changed: dict[str, str], told: str) -> None:
    settings = proxy_files.settings
    variables = {
        "TLS_CERTIFICATE_FILE": settings.certificate_file,
        "TLS_KEY_FILE": settings.key_file,
        "TLS_AUTHORITY_FILE": settings.authority_file,
        "TLSPROXY_ADDRESS": "127.0.0.1:0",
        "TLSPROXY_TARGET_ADDRESS": "127.0.0.1:1",
    } | changed

    ran = subprocess.run(
        [sys.executable, "-m", "tandem.chassis.tls_proxy"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ran.returncode == 2
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr
