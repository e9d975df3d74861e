"""Loads a process's certificates and trusted authorities, and reloads them while it runs.

Servers check the files at each handshake, clients every second, so a rotation needs no restart. A
pair that does not match, as between two writes, leaves the previous one in use.
"""

import contextlib
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tandem.chassis.settings import SettingsError, exiting_on_faults, load, setting
from tandem.chassis.telemetry.log import get_logger

log = get_logger()

_LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsSettings:
    """Configures the certificate files; set all three or none."""

    certificate_file: str = setting(
        "PEM file with this process's certificate chain; empty for plain text",
        default="",
    )
    key_file: str = setting("PEM file with the certificate's key", default="")
    authority_file: str = setting("PEM file with the trusted authorities", default="")
    client_certificate_required: bool = setting(
        "whether callers must present a certificate; off if tokens are enough",
        default=True,
    )
    peer_names: tuple[str, ...] = setting(
        "accepted names in callers' certificates; empty for every certificate of a trusted "
        "authority",
        default=(),
    )


@dataclass(frozen=True, slots=True)
class Certificates:
    """The PEM bytes of one moment."""

    chain: bytes
    key: bytes
    authorities: bytes


class Identity:
    """The certificate files of a process. Thread-safe."""

    def __init__(self, settings: TlsSettings) -> None:
        """Raises SettingsError if a file is missing, or key and certificate do not match."""
        self._paths = (settings.certificate_file, settings.key_file, settings.authority_file)
        if not all(self._paths):
            raise SettingsError(
                "TLS_CERTIFICATE_FILE, TLS_KEY_FILE and TLS_AUTHORITY_FILE must be set together"
            )
        if settings.peer_names and not settings.client_certificate_required:
            raise SettingsError("TLS_PEER_NAMES needs TLS_CLIENT_CERTIFICATE_REQUIRED")
        self.is_client_certificate_required = settings.client_certificate_required
        self.peer_names = frozenset(settings.peer_names)
        self._stamp = self._look()
        self._certificates = self._read()

    @classmethod
    def of(cls, settings: TlsSettings) -> Self | None:
        """Returns the identity; None for plain text. Raises SettingsError."""
        is_set = settings.certificate_file or settings.key_file or settings.authority_file
        if not is_set and settings.peer_names:
            raise SettingsError("TLS_PEER_NAMES is set without TLS_CERTIFICATE_FILE")
        return cls(settings) if is_set else None

    def certificates(self) -> Certificates:
        """Returns the contents of the files, or the last ones that matched."""
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._certificates = self._read()
                self._stamp = stamp
                log.info("certificates changed", certificate_file=self._paths[0])
        except SettingsError as error:
            log.warning("certificates cannot be used; the previous ones stay", cause=str(error))
        return self._certificates

    def caller_context(self) -> ssl.SSLContext:
        """Returns an SSL context with this certificate that accepts any: for calls to this process.

        Raises SettingsError if the files do not match.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self._show_in(context)
        return context

    def server_context(self, alpn_protocol: str = "h2") -> ssl.SSLContext:
        """Returns a server's SSL context, which requires client certificates if configured.

        Raises SettingsError if the files do not match.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([alpn_protocol])
        self._show_in(context)
        authorities = self.certificates().authorities
        try:
            context.load_verify_locations(cadata=authorities.decode("ascii"))
        except (UnicodeDecodeError, ssl.SSLError) as error:
            raise SettingsError(f"{self._paths[2]}: {error}") from error
        if self.is_client_certificate_required:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _show_in(self, context: ssl.SSLContext) -> None:
        chain, key, _ = self._paths
        try:
            context.load_cert_chain(chain, key)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{chain}, {key}: {error}") from error

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        """Returns a value that changes when a file, or a symbolic link to it, does."""
        try:
            stats = [Path(path).stat() for path in self._paths]
        except OSError as error:
            raise SettingsError(f"TLS file cannot be read: {error}") from error
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def _read(self) -> Certificates:
        chain, key, authorities = self._paths
        try:
            # Raises if the key does not match, which gRPC only notices in handshakes.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(chain, key)
            context.load_verify_locations(authorities)
            return Certificates(*(Path(path).read_bytes() for path in self._paths))
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{chain}, {key}, {authorities}: {error}") from error


class ServerContexts:
    """Makes a server's SSL contexts by the current files.

    New files need a new context, because authorities cannot be removed from one.
    """

    def __init__(self, identity: Identity, alpn_protocol: str = "h2") -> None:
        """Raises SettingsError if the files do not match."""
        self._identity = identity
        self._alpn_protocol = alpn_protocol
        self._certificates = identity.certificates()
        self._context = identity.server_context(alpn_protocol)
        self.have_changed = False

    def current(self) -> ssl.SSLContext:
        """Returns the context of the current files, or of the last ones that matched."""
        certificates = self._identity.certificates()
        if certificates is not self._certificates:
            # Between two writes the files do not match; the next call checks again.
            with contextlib.suppress(SettingsError):
                self._context = self._identity.server_context(self._alpn_protocol)
                self._certificates, self.have_changed = certificates, True
        return self._context


class Rotation:
    """Detects a change of a client's certificates; checks the file system once a second."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._look_time = time.monotonic() + _LOOK_SECONDS
        self.certificates = identity.certificates()

    def is_due(self) -> bool:
        """Returns whether `certificates` is new since the last call."""
        now = time.monotonic()
        if now < self._look_time:
            return False
        self._look_time = now + _LOOK_SECONDS
        before, self.certificates = self.certificates, self._identity.certificates()
        return self.certificates is not before


def load_identity_or_exit() -> Identity | None:
    """Returns the process's identity by TLS_… variables, None for plain text; for `__main__` only.

    Exits 2 with a message if they are invalid.
    """
    with exiting_on_faults():
        return Identity.of(load(TlsSettings, "TLS_", os.environ))
