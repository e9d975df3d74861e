"""tls: who is let in, and certificates that change under load."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
import trustme

from tandem.chassis.calls.channels import SERVER_OPTIONS, call, open_channel
from tandem.chassis.calls.credentials import server_credentials, server_options
from tandem.chassis.health.health import Health
from tandem.chassis.serve.server import make_server
from tandem.chassis.settings import SettingsError
from tandem.chassis.tls import Identity, TlsSettings
from tandem.errors import ServiceUnavailable, TandemError
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceStub,
    add_SearchServiceServicer_to_server,
)
from tests.support.chassis.authority import Files
from tests.support.chassis.scripted_service import SEARCH_SERVICE, ScriptedSearch, until


@dataclass
class Server:
    """A server with certificates, and how many calls it has entered."""

    port: int
    entered: list[str] = field(default_factory=list)

    async def try_call(self, channel: grpc.aio.Channel, seconds: float = 60.0) -> None:
        """Makes one call; raises a TandemError."""
        stub = SearchServiceStub(channel)
        await call(
            stub.SearchItems, pb.SearchItemsRequest(), service="scripted", timeout_seconds=seconds
        )

    async def refusal(self, channel: grpc.aio.Channel) -> type[TandemError] | None:
        """Returns what one call is refused with; None where it is answered."""
        try:
            await self.try_call(channel, seconds=60.0)
        except TandemError as error:
            return type(error)
        return None

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"


@asynccontextmanager
async def serving(identity: Identity) -> AsyncIterator[Server]:
    """Runs a service that shows and asks for certificates."""
    entered: list[str] = []

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        entered.append(context.peer())
        return pb.SearchItemsResponse()

    server = await make_server(
        "scripted",
        Health("scripted", [SEARCH_SERVICE]),
        lambda server: add_SearchServiceServicer_to_server(ScriptedSearch(search), server),
        [SEARCH_SERVICE],
        options=server_options(SERVER_OPTIONS, identity),
    )
    port = server.add_secure_port("localhost:0", server_credentials(identity))
    await server.start()
    try:
        yield Server(port, entered)
    finally:
        await server.stop(None)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_files(tmp_path: Path, authority: trustme.CA) -> Files:
    files = Files(tmp_path / "server")
    files.write(authority)
    return files


@pytest.fixture
def client_files(tmp_path: Path, authority: trustme.CA) -> Files:
    files = Files(tmp_path / "client")
    files.write(authority, "orchestrator")
    return files


async def test_strangers_are_refused_before_any_handler(
    tmp_path: Path, server_files: Files, authority: trustme.CA
) -> None:
    other = trustme.CA()
    stranger = Files(tmp_path / "stranger")
    stranger.write(other, "orchestrator", trusted=(authority,))
    expired = Files(tmp_path / "expired")
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired.write(authority, "orchestrator", not_after=yesterday)
    distrustful = Files(tmp_path / "distrustful")
    distrustful.write(authority, "orchestrator", trusted=(other,))
    roots = grpc.ssl_channel_credentials(authority.cert_pem.bytes())

    async with serving(server_files.identity()) as server:
        channels = {
            "plain text": open_channel(server.address),
            "no certificate": grpc.aio.secure_channel(server.address, roots),
            **{
                files.folder.name: open_channel(server.address, files.identity())
                for files in (stranger, expired, distrustful)
            },
        }
        for name, channel in channels.items():
            assert await server.refusal(channel) is ServiceUnavailable, name
            await channel.close()
    assert server.entered == []


async def test_certificates_change_under_load(
    server_files: Files, client_files: Files, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.chassis.tls._LOOK_SECONDS", 0.02)
    monkeypatch.setattr("tandem.chassis.calls.credentials.MAX_CONNECTION_AGE_SECONDS", 1)
    failures: list[TandemError] = []
    answered_count = 0
    done = asyncio.Event()

    async with (
        serving(server_files.identity()) as server,
        open_channel(server.address, client_files.identity()) as channel,
    ):

        async def one() -> None:
            nonlocal answered_count
            try:
                await server.try_call(channel)
                answered_count += 1
            except TandemError as error:
                failures.append(error)

        async def load() -> None:
            async with asyncio.TaskGroup() as group:
                while not done.is_set():
                    group.create_task(one())
                    await asyncio.sleep(0.01)

        loading = asyncio.create_task(load())
        current = authority
        for change_count in range(1, 21):
            following = trustme.CA()
            # An authority is changed in two steps: both are trusted before the new one signs.
            for files, name in ((server_files, "localhost"), (client_files, "orchestrator")):
                files.write(current, name, trusted=(current, following))
            await asyncio.sleep(0.1)
            await one()  # so the caller has looked, however late, before the server shows the new
            for files, name in ((server_files, "localhost"), (client_files, "orchestrator")):
                files.write(following, name, trusted=(current, following))
            await asyncio.sleep(0.1)
            current = following
            # A busy machine answers fewer in that time.
            least_count = 10 * change_count
            await until(lambda: answered_count >= least_count or bool(failures), 100.0)  # noqa: B023
        done.set()
        await loading
    assert failures == []
    assert answered_count >= 200


async def test_a_removed_authority_admits_no_one(
    tmp_path: Path, server_files: Files, client_files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.chassis.calls.credentials.MAX_CONNECTION_AGE_SECONDS", 1)
    following = trustme.CA()
    async with (
        serving(server_files.identity()) as server,
        open_channel(server.address, client_files.identity()) as channel,
    ):
        await server.try_call(channel)
        server_files.write(following)
        end_time = time.monotonic() + 60
        while await server.refusal(channel) is None:
            assert time.monotonic() < end_time
            await asyncio.sleep(0.05)
        assert await server.refusal(channel) is ServiceUnavailable


def test_files_that_do_not_fit_leave_those_before(
    server_files: Files, authority: trustme.CA
) -> None:
    identity = server_files.identity()
    before = identity.certificates()
    key_path = server_files.folder / "tls.key"
    key = key_path.read_bytes()
    key_path.write_bytes(authority.issue_cert("other").private_key_pem.bytes())
    assert identity.certificates() is before
    key_path.unlink()
    assert identity.certificates() is before
    key_path.write_bytes(key)
    assert identity.certificates() == before
    server_files.write(authority)
    assert identity.certificates() != before


@pytest.mark.parametrize(
    "settings",
    [
        TlsSettings(certificate_file="a"),
        TlsSettings(peer_names=("orchestrator",)),
    ],
)
def test_settings_at_fault_are_named(settings: TlsSettings) -> None:
    with pytest.raises(SettingsError, match=r"TLS|No such file"):
        Identity.of(settings)


def test_no_settings_are_plain_text() -> None:
    assert Identity.of(TlsSettings()) is None
