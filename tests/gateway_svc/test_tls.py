"""gateway_svc.http_server with certificates: what is shown, who is let in, and what changes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from gateway_svc import connection
from tandem.chassis.access.guard import Guard
from tests.support.chassis.authority import Files
from tests.support.gateway_svc.running import SEARCH, Gateway, gateway

NAMES = ("localhost", "127.0.0.1", "gateway")
HEAD = f"POST {SEARCH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
WHOLE = f"{HEAD}Content-Length: 2\r\n\r\n{{}}".encode()
LAST = f"{HEAD}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode()


@dataclass(frozen=True)
class Caller:
    """What a caller trusts, and shows."""

    authority: trustme.CA
    files: Files | None = None
    name: str = "localhost"

    def context(self) -> ssl.SSLContext:
        """Returns a client's context, which checks the certificate and the name."""
        context = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        if self.files is not None:
            settings = self.files.settings
            context.load_cert_chain(settings.certificate_file, settings.key_file)
        return context

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Shakes hands; raises SSLError where the certificate is not to be trusted."""
        return await asyncio.open_connection(
            "127.0.0.1", port, ssl=self.context(), server_hostname=self.name
        )

    async def status(self, port: int) -> int | None:
        """Returns the status of one search; None where the connection ends without one."""
        try:
            async with asyncio.timeout(60.0):
                reader, writer = await self.connect(port)
                writer.write(LAST)
                answer = await reader.read()
                writer.close()
        except (ssl.SSLCertVerificationError, TimeoutError):
            raise
        except OSError:
            # With TLS 1.3 a refusal arrives with the first read.
            return None
        return int(answer.split()[1]) if answer else None


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Files:
    """The gateway's."""
    written = Files(tmp_path / "gateway")
    written.write(authority, *NAMES)
    return written


def own(folder: Path, authority: trustme.CA, *names: str) -> Files:
    """Returns a caller's files."""
    written = Files(folder)
    written.write(authority, *(names or ("someone",)))
    return written


@asynccontextmanager
async def secured(
    files: Files, *, client_certificate_required: bool = False, guard: Guard | None = None
) -> AsyncIterator[Gateway]:
    """Runs a gateway with the files."""
    identity = files.identity()
    identity.is_client_certificate_required = client_certificate_required
    async with gateway(identity=identity, guard=guard) as served:
        yield served


def shown(writer: asyncio.StreamWriter) -> bytes:
    """Returns the certificate that the gateway shows on this connection."""
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return found


def written(files: Files) -> bytes:
    """Returns the certificate in the files, without its chain."""
    pem = Path(files.settings.certificate_file).read_text()
    end = "-----END CERTIFICATE-----\n"
    return ssl.PEM_cert_to_DER_cert(pem[: pem.index(end) + len(end)])


def spoil_key(files: Files, authority: trustme.CA) -> None:
    """Puts another certificate's key next to the certificate, as between two writes."""
    key = authority.issue_cert("localhost").private_key_pem.bytes()
    Path(files.settings.key_file).write_bytes(key)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_the_certificate_of_the_files_is_shown(
    files: Files, authority: trustme.CA, name: str
) -> None:
    caller = Caller(authority, name=name)
    async with secured(files) as served:
        _, writer = await caller.connect(served.port)
        found, version = shown(writer), writer.get_extra_info("ssl_object").version()
        writer.close()
        status = await caller.status(served.port)

    assert (found, version, status) == (written(files), "TLSv1.3", 200)


async def test_plain_text_is_not_answered(files: Files, authority: trustme.CA) -> None:
    async with secured(files) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(LAST)
        async with asyncio.timeout(60.0):
            try:
                answer = await reader.read()
            except ConnectionError:
                answer = b""
        writer.close()
        asked = len(served.service.requests)
        status = await Caller(authority).status(served.port)
    async with gateway() as plain:
        refused = await Caller(authority).status(plain.port)

    assert b"HTTP" not in answer
    assert (asked, status, refused) == (0, 200, None)


async def test_an_old_version_is_not_spoken(files: Files, authority: trustme.CA) -> None:
    caller = Caller(authority)
    versions: dict[str, str | None] = {}
    async with secured(files) as served:
        for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_1):
            context = caller.context()
            # The security level of the library has no cipher for TLS 1.1.
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = ssl.TLSVersion.TLSv1
                context.maximum_version = newest
            try:
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", served.port, ssl=context, server_hostname="localhost"
                )
            except OSError:
                versions[newest.name] = None
            else:
                versions[newest.name] = writer.get_extra_info("ssl_object").version()
                writer.close()

    assert versions == {"TLSv1_2": "TLSv1.2", "TLSv1_1": None}


async def test_a_missing_handshake_holds_no_connection(files: Files) -> None:
    identity = files.identity()
    async with gateway(identity=identity, head_seconds=0.2) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        async with asyncio.timeout(60.0):
            rest = await reader.read()
        writer.close()

    assert rest == b""


async def test_with_mutual_tls_only_certificates_of_the_authority_are_let_in(
    files: Files, authority: trustme.CA, tmp_path: Path
) -> None:
    """As between services; browsers need TLS_CLIENT_CERTIFICATE_REQUIRED=false."""
    known = Caller(authority, own(tmp_path / "known", authority))
    strange = Caller(authority, own(tmp_path / "strange", trustme.CA()))
    nobody = Caller(authority)
    async with secured(files, client_certificate_required=True) as served:
        strict = [await each.status(served.port) for each in (known, strange, nobody)]
        asked = len(served.service.requests)
    async with secured(files) as served:
        open_to_all = await nobody.status(served.port)

    assert strict == [200, None, None]
    assert asked == 1
    assert open_to_all == 200


async def test_only_the_names_that_are_accepted_may_call(
    files: Files, authority: trustme.CA, tmp_path: Path
) -> None:
    """TLS_PEER_NAMES holds over HTTP as over gRPC, for calls and for pages."""
    accepted = Caller(authority, own(tmp_path / "accepted", authority, "frontend", "127.0.0.1"))
    other = Caller(authority, own(tmp_path / "other", authority, "batch"))
    guard = Guard(peer_names=frozenset({"frontend"}))
    async with secured(files, client_certificate_required=True, guard=guard) as served:
        statuses = [await each.status(served.port) for each in (accepted, other)]
        reader, writer = await other.connect(served.port)
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        page = await reader.readuntil(b"\r\n")
        writer.close()

    assert statuses == [200, 401]
    assert len(served.service.requests) == 1
    assert page.split()[1] == b"401"


async def test_new_files_are_shown_from_the_next_handshake(
    files: Files, authority: trustme.CA
) -> None:
    caller = Caller(authority)
    async with secured(files) as served:
        reader, writer = await caller.connect(served.port)
        first = written(files)
        files.write(authority, *NAMES)
        second = written(files)
        _, next_writer = await caller.connect(served.port)
        spoil_key(files, authority)
        _, last_writer = await caller.connect(served.port)
        found = [shown(each) for each in (writer, next_writer, last_writer)]
        writer.write(WHOLE)
        async with asyncio.timeout(60.0):
            answer = await reader.readuntil(b"\r\n")
        for each in (writer, next_writer, last_writer):
            each.close()

    assert found == [first, second, second]
    assert first != second
    assert answer.split()[1] == b"200"


async def test_a_removed_authority_admits_no_one(
    files: Files, authority: trustme.CA, tmp_path: Path
) -> None:
    successor = trustme.CA()
    old = Caller(authority, own(tmp_path / "old", authority))
    new = Caller(successor, own(tmp_path / "new", successor))
    async with secured(files, client_certificate_required=True) as served:
        before = await old.status(served.port)
        files.write(successor, *NAMES)
        trusting = Caller(successor, old.files)
        after = [await each.status(served.port) for each in (trusting, new)]

    assert before == 200
    assert after == [None, 200]


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_resumed_session_does_not_outlive_its_authority(
    files: Files, authority: trustme.CA, tmp_path: Path, newest: ssl.TLSVersion
) -> None:
    context = Caller(authority, own(tmp_path / "someone", authority)).context()
    context.maximum_version = newest
    async with secured(files, client_certificate_required=True) as served:
        first = await asyncio.to_thread(one_session, context, served.port)
        again = await asyncio.to_thread(one_session, context, served.port, first.session)
        # Its own certificate still is of the authority that the caller trusts.
        files.write(authority, *NAMES, trusted=(trustme.CA(),))
        last = await asyncio.to_thread(one_session, context, served.port, first.session)

    assert (first.status, again.status, last.status) == (200, 200, None)
    # TLS 1.3 resumes none, and TLS 1.2 by id.
    assert again.is_resumed == (newest is ssl.TLSVersion.TLSv1_2)


@dataclass(frozen=True)
class Session:
    """How one connection ended: without a status if it was refused."""

    status: int | None
    is_resumed: bool = False
    session: ssl.SSLSession | None = None


def one_session(
    context: ssl.SSLContext, port: int, session: ssl.SSLSession | None = None
) -> Session:
    """Makes a search on a connection of its own, which offers a session."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as wrapped,
        ):
            wrapped.sendall(LAST)
            answer = b""
            while piece := wrapped.recv(65536):
                answer += piece
            status = int(answer.split()[1]) if answer else None
            return Session(status, bool(wrapped.session_reused), wrapped.session)
    except OSError:
        return Session(None)


async def test_an_old_connection_must_shake_hands_again(
    files: Files, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer after its age ends it, so that a removed authority is out; a young one stays."""
    caller = Caller(authority)
    async with secured(files) as served:
        reader, writer = await caller.connect(served.port)
        writer.write(WHOLE)
        young = await reader.readuntil(b"\r\n\r\n{}")
        monkeypatch.setattr(connection, "MAX_CONNECTION_AGE_SECONDS", 0.0)
        writer.write(WHOLE)
        async with asyncio.timeout(60.0):
            old = await reader.read()
        writer.close()

    assert b"connection: close" not in young.lower()
    assert b"200" in old.split(b"\r\n")[0]
    assert b"connection: close" in old.lower()
