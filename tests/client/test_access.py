"""What a client shows, against a server that asks for it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import grpc
import pytest
import trustme

from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tandem.chassis.calls.credentials import server_credentials
from tandem.chassis.health.health import Health
from tandem.chassis.serve.server import make_server
from tandem.chassis.tls import Identity, TlsSettings
from tandem.client import Access, AsyncClient
from tandem.errors import PermissionDenied, ServiceUnavailable, Unauthenticated
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server
from tests.support.chassis.authority import Files
from tests.support.chassis.scripted_service import SEARCH_SERVICE, ScriptedSearch, nothing_found

TOKENS = f"""
[tokens.a]
sha256 = "{sha256(b"secret").hexdigest()}"
scopes = ["search"]
indexes = ["scenes"]
"""


async def start(tmp_path: Path, authority: trustme.CA) -> tuple[grpc.aio.Server, str]:
    """Starts a server as an orchestrator is deployed: TLS without client certificates, tokens."""
    files = Files(tmp_path / "server")
    files.write(authority)
    shown = files.settings
    identity = Identity(
        TlsSettings(
            certificate_file=shown.certificate_file,
            key_file=shown.key_file,
            authority_file=shown.authority_file,
            client_certificate_required=False,
        )
    )
    (tmp_path / "tokens.toml").write_text(TOKENS)
    health = Health("scripted", [SEARCH_SERVICE])
    server = await make_server(
        "scripted",
        health,
        lambda made: add_SearchServiceServicer_to_server(ScriptedSearch(nothing_found), made),
        [SEARCH_SERVICE],
        guard=Guard(TokenFile(tmp_path / "tokens.toml")),
    )
    port = server.add_secure_port("localhost:0", server_credentials(identity))
    await server.start()
    await health.watch(_warm, None)
    return server, f"localhost:{port}"


async def _warm() -> None:
    """It was never cold."""


async def test_a_token_over_tls_is_let_in(tmp_path: Path) -> None:
    authority = trustme.CA()
    pem = authority.cert_pem.bytes()
    server, address = await start(tmp_path, authority)
    try:
        async with AsyncClient(address, access=Access("secret", pem)) as client:
            assert (await client.search("a cup", index_id="scenes")).items == ()
            with pytest.raises(PermissionDenied, match="emoji"):
                await client.search("a cup", index_id="emoji")
        async with AsyncClient(address, access=Access(authority=pem)) as client:
            with pytest.raises(Unauthenticated):
                await client.search("a cup", index_id="scenes")
        async with AsyncClient(address, timeout_seconds=60.0) as client:
            with pytest.raises(ServiceUnavailable):
                await client.search("a cup", index_id="scenes")
    finally:
        await server.stop(None)


def test_the_environment_selects_the_credentials(tmp_path: Path) -> None:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(f"PEM of {name}")
    access = Access.from_environment(
        {
            "TANDEM_TOKEN": "secret",
            "TANDEM_AUTHORITY_FILE": str(tmp_path / "ca"),
            "TANDEM_CERTIFICATE_FILE": str(tmp_path / "crt"),
            "TANDEM_KEY_FILE": str(tmp_path / "key"),
        }
    )
    assert access == Access("secret", b"PEM of ca", b"PEM of crt", b"PEM of key")
    assert access.metadata() == (("authorization", "Bearer secret"),)
    assert "secret" not in repr(access)
    assert "PEM of key" not in repr(access)
    assert Access.from_environment({}) == Access()


@pytest.mark.parametrize("variable", ["TANDEM_AUTHORITY_FILE"])
def test_a_file_that_cannot_be_read_is_named_with_its_variable(
    tmp_path: Path, variable: str
) -> None:
    """A path alone does not say where it comes from."""
    for path, kind in ((tmp_path / "no.pem", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(kind) as caught:
            Access.from_environment({variable: str(path)})
        assert caught.value.filename == str(path)
        assert f"correct {variable}, which names it" in str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\u2028"])
def test_whitespace_around_a_token_is_ignored(end: str) -> None:
    """A file's line end comes along with it, by `$(<file)` in other tools' words."""
    for access in (
        Access(end + "secret" + end),
        Access.from_environment({"TANDEM_TOKEN": "secret" + end}),
    ):
        assert access == Access("secret")
        assert access.metadata() == (("authorization", "Bearer secret"),)
    for nothing in (end, ""):
        assert Access(nothing).metadata() == ()
        assert Access.from_environment({"TANDEM_TOKEN": nothing}) == Access()


@pytest.mark.parametrize(
    "token",
    [
        "canary\nx",
        "canaryé",
        "canary\ud83d",
        "canary" * 1_000,
    ],
)
def test_an_unsendable_token_is_refused_before_any_call(token: str) -> None:
    """The error names it and never quotes the token, which may be almost right."""
    for make in (lambda: Access(token), lambda: Access.from_environment({"TANDEM_TOKEN": token})):
        with pytest.raises(Unauthenticated, match="its token has") as caught:
            make()
        assert "canary" not in str(caught.value)
        assert "canary" not in repr(caught.value)
