"""Certificates for tests, written to files as an operator would."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import trustme

from tandem.chassis.tls import Identity, TlsSettings


@dataclass
class Files:
    """One process's certificate, key, and the authorities it trusts."""

    folder: Path

    @property
    def settings(self) -> TlsSettings:
        """As TLS_… variables would say."""
        return TlsSettings(
            certificate_file=str(self.folder / "tls.crt"),
            key_file=str(self.folder / "tls.key"),
            authority_file=str(self.folder / "ca.crt"),
        )

    def identity(self) -> Identity:
        """Returns what a process makes of the files."""
        return Identity(self.settings)

    def write(
        self,
        authority: trustme.CA,
        *names: str,
        trusted: tuple[trustme.CA, ...] = (),
        not_after: datetime.datetime | None = None,
    ) -> None:
        """Has the authority issue a certificate; trusts it, or `trusted` where given."""
        self.folder.mkdir(exist_ok=True)
        issued = authority.issue_cert(*(names or ("localhost", "127.0.0.1")), not_after=not_after)
        pems = [pem.bytes() for pem in issued.cert_chain_pems]
        (self.folder / "tls.key").write_bytes(issued.private_key_pem.bytes())
        (self.folder / "tls.crt").write_bytes(b"".join(pems))
        trust = b"".join(each.cert_pem.bytes() for each in trusted or (authority,))
        (self.folder / "ca.crt").write_bytes(trust)
