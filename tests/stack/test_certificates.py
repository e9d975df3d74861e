"""tandem.stack.certificates: what `tandem up --tls` issues is taken by our own services."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from tandem.chassis.settings import load
from tandem.chassis.tls import Identity, TlsSettings
from tandem.stack import certificates
from tandem.stack.certificates import PEERS, LocalAuthority

DOORS = ("gateway", "orchestrator")


def issued(folder: Path) -> x509.Certificate:
    """Returns the certificate in a folder."""
    return x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())


def test_every_process_starts_with_its_certificate(tmp_path: Path) -> None:
    """Identity reads each pair, and only the doors ask callers for nothing."""
    variables = LocalAuthority(tmp_path / "tls").issue_all()

    assert set(variables) == set(PEERS)
    for kind, its in variables.items():
        identity = Identity(load(TlsSettings, "TLS_", its))
        assert identity.is_client_certificate_required == (kind not in DOORS)
        assert identity.server_context().verify_mode == (
            ssl.CERT_NONE if kind in DOORS else ssl.CERT_REQUIRED
        )


def test_files_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    LocalAuthority(tmp_path / "tls").issue_all()

    files = [path for path in (tmp_path / "tls").rglob("*") if path.is_file()]
    assert len(files) == 2 + 3 * len(PEERS)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    folders = [tmp_path / "tls", *(path for path in (tmp_path / "tls").iterdir() if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_a_second_start_keeps_the_authority_and_renews_the_rest(tmp_path: Path) -> None:
    """Who trusted it before trusts what is issued now."""
    first = LocalAuthority(tmp_path / "tls")
    folder = first.issue("encoder")
    authority, before = first.authority_file.read_bytes(), issued(folder)

    second = LocalAuthority(tmp_path / "tls")
    second.issue("encoder")

    assert second.authority_file.read_bytes() == authority
    assert issued(folder).serial_number != before.serial_number


def test_an_authority_that_ends_soon_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it would issue what outlives it."""
    monkeypatch.setattr(certificates, "_AUTHORITY_LIFE", datetime.timedelta(days=31))
    ending = LocalAuthority(tmp_path / "tls").authority_file.read_bytes()
    monkeypatch.undo()

    assert LocalAuthority(tmp_path / "tls").authority_file.read_bytes() != ending


def test_a_certificate_is_of_a_month_and_for_loopback(tmp_path: Path) -> None:
    certificate = issued(LocalAuthority(tmp_path / "tls").issue("index", "index-0"))

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["index", "index-0", "localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    lifetime = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=29) < lifetime < datetime.timedelta(days=31)
