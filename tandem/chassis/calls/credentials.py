"""Makes gRPC's credentials of a process's certificates, which may change while it runs."""

from collections.abc import Sequence
from typing import Any

import grpc

from tandem.chassis.settings import SettingsError
from tandem.chassis.tls import Certificates, Identity

# After this, a caller whose authority is no longer trusted must shake hands again.
MAX_CONNECTION_AGE_SECONDS = 45


def server_options(
    options: Sequence[tuple[str, Any]], identity: Identity | None
) -> tuple[tuple[str, Any], ...]:
    """Returns server options that age connections, because only handshakes check the files."""
    if identity is None:
        return tuple(options)
    aging = {
        "grpc.max_connection_age_ms": MAX_CONNECTION_AGE_SECONDS * 1_000,
        # For calls in flight; an aged connection gets no new ones.
        "grpc.max_connection_age_grace_ms": 60_000,
    }
    # gRPC takes either of two equal options.
    return tuple((dict(options) | aging).items())


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    """Returns credentials that follow the files, and require client certificates if configured."""
    shown = identity.certificates()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        certificates = identity.certificates()
        if certificates is shown:
            return None
        shown = certificates
        return _configuration(certificates)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(shown),
        changed,
        require_client_authentication=identity.is_client_certificate_required,
    )


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificates.key, certificates.chain)], root_certificates=certificates.authorities
    )


def channel_credentials(certificates: Certificates) -> grpc.ChannelCredentials:
    """Returns a client's credentials."""
    return grpc.ssl_channel_credentials(
        certificates.authorities, certificates.key, certificates.chain
    )


def triton_identity(identity: Identity | None, *, is_asked_for: bool) -> Identity | None:
    """Returns the identity that calls to Triton show, None for plain text.

    Raises SettingsError without certificates.
    """
    if not is_asked_for:
        return None
    if identity is None:
        raise SettingsError("TLS to Triton needs TLS_CERTIFICATE_FILE and its companions")
    return identity
