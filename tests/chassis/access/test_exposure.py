"""access.exposure: a start says what is open, and by which setting it is closed."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from structlog.testing import capture_logs

from tandem.chassis.access.exposure import is_loopback, warn_of_exposure
from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tandem.chassis.tls import Identity, TlsSettings
from tests.support.chassis.authority import Files

ORCHESTRATOR = ["tandem.v1.SearchService", "tandem.v1.ModelService"]
INDEX = ["tandem.v1.IndexService", "tandem.v1.IndexAdminService"]
NOTHING = "callers from other machines need no credentials"
PLAIN = "other machines send tokens in plain text"
INTERNAL = "internal methods need no token"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """One process's certificate."""
    made = Files(tmp_path_factory.mktemp("tls") / "own")
    made.write(trustme.CA())
    return made


def identity_of(files: Files, *, is_required: bool) -> Identity:
    """Returns the identity of a process that asks callers for certificates, or does not."""
    settings = files.settings
    return Identity(
        TlsSettings(
            certificate_file=settings.certificate_file,
            key_file=settings.key_file,
            authority_file=settings.authority_file,
            client_certificate_required=is_required,
        )
    )


@pytest.mark.parametrize(
    ("address", "names", "has_tokens", "certificates", "expected"),
    [
        ("127.0.0.1:7400", ORCHESTRATOR, False, None, {}),
        ("0.0.0.0:7400", ORCHESTRATOR, False, None, {NOTHING: "set ACCESS_TOKEN_FILE"}),
        ("[::]:7420", INDEX, False, None, {NOTHING: "set ACCESS_TOKEN_FILE and set TLS_"}),
        ("0.0.0.0:7400", ORCHESTRATOR, False, "shown", {NOTHING: "set ACCESS_TOKEN_FILE"}),
        ("0.0.0.0:7400", ORCHESTRATOR, False, "asked for", {}),
        ("0.0.0.0:7400", ORCHESTRATOR, True, None, {PLAIN: "set TLS_CERTIFICATE_FILE"}),
        ("127.0.0.1:7420", INDEX, True, None, {INTERNAL: "set TLS_CERTIFICATE_FILE"}),
        ("0.0.0.0:7420", INDEX, True, "asked for", {}),
    ],
)
def test_an_exposure_is_named_with_the_setting_that_closes_it(
    files: Files,
    tmp_path: Path,
    address: str,
    names: list[str],
    has_tokens: bool,
    certificates: str | None,
    expected: dict[str, str],
) -> None:
    (tmp_path / "tokens.toml").write_text("", "utf-8")
    guard = Guard(TokenFile(tmp_path / "tokens.toml") if has_tokens else None)
    identity = (
        None
        if certificates is None
        else identity_of(files, is_required=certificates == "asked for")
    )

    with capture_logs() as lines:
        warn_of_exposure(address, names, identity, guard)

    assert [line["event"] for line in lines] == list(expected)
    assert all(line["log_level"] == "warning" for line in lines)
    for line in lines:
        assert line["mend"].startswith(expected[line["event"]])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.8.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("[::]:1", False),
        ("orchestrator:1", False),
    ],
)
def test_loopback_addresses_are_recognised(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
