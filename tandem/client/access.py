"""Configures how a client authenticates: with a token, certificates, or not at all."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import grpc
from typing_extensions import Self

from tandem.contract.address import Address
from tandem.errors import Unauthenticated

_FILES = {
    "authority": "TANDEM_AUTHORITY_FILE",
    "certificate": "TANDEM_CERTIFICATE_FILE",
    "key": "TANDEM_KEY_FILE",
}

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # Call the orchestrators of a name in turn, except those that are NOT_SERVING: before they are
    # warm, and from SIGTERM on, while they still answer.
    (
        "grpc.service_config",
        '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}',
    ),
    # Resolve a name again when a server leaves it, not half a minute later.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # The default backs off up to 120 s, in which a restarted server would go unnoticed.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Notices a dead connection after 20 s, also in a stream without a deadline. A slow server still
    # answers pings, in gRPC's own threads; a slow connection has 10 s. Our servers accept one ping
    # a second.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_send_message_length", 64 * 2**20),
    ("grpc.max_receive_message_length", 64 * 2**20),
)

# The metadata of a call are limited to 8 KiB.
_MAX_TOKEN_CHARACTERS = 4_096


@dataclass(frozen=True, slots=True)
class Access:
    """Without an authority a client uses plain text, also for its token."""

    token: str | None = field(default=None, repr=False)
    authority: bytes | None = None
    """PEM of the trusted authorities."""
    certificate: bytes | None = None
    """PEM of the client's certificate chain, if servers require one; set it with `key`."""
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError if the parts do not fit together.

        Raises Unauthenticated for a token that a header cannot carry. White space around a token,
        as files leave it, is removed.
        """
        if self.token is not None:
            object.__setattr__(self, "token", _checked_token(self.token.strip()) or None)
        if (self.certificate is None) != (self.key is None):
            raise ValueError("set certificate and key together")
        if self.certificate is not None and self.authority is None:
            raise ValueError("a client certificate needs TLS; set authority too")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Reads TANDEM_TOKEN, TANDEM_AUTHORITY_FILE, _CERTIFICATE_FILE and _KEY_FILE.

        Raises OSError, with the variable in its message, for a file that cannot be read, and the
        errors of the class.
        """
        values = os.environ if environ is None else environ
        files = {
            name: _file_bytes(variable, path)
            for name, variable in _FILES.items()
            if (path := values.get(variable))
        }
        return cls(values.get("TANDEM_TOKEN") or None, **files)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata of each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token is not None else ()

    def open_channel(
        self, address: str, options: Sequence[tuple[str, int | str]] = CHANNEL_OPTIONS
    ) -> grpc.Channel:
        """Returns a channel to host:port; raises AddressInvalid, a ValueError.

        By default it calls only servers that are serving. It uses a proxy of the environment, but
        never for this machine.
        """
        place = Address.parse(address)
        options = (*options, *place.channel_options)
        _let_greenlets_run()
        if self.authority is None:
            return grpc.insecure_channel(place.target, options=options)
        return grpc.secure_channel(place.target, self._credentials(), options=options)

    def open_aio_channel(self, address: str) -> grpc.aio.Channel:
        """Returns a channel as `open_channel` does, for the running event loop."""
        place = Address.parse(address)
        options = (*CHANNEL_OPTIONS, *place.channel_options)
        if self.authority is None:
            return grpc.aio.insecure_channel(place.target, options=options)
        return grpc.aio.secure_channel(place.target, self._credentials(), options=options)

    def _credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


def _let_greenlets_run() -> None:
    """Makes calls wait as gevent does where it has patched this process.

    gRPC waits outside Python otherwise, where all other greenlets stand still with the caller.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        _init_gevent()


@cache
def _init_gevent() -> None:
    from grpc.experimental.gevent import init_gevent  # it imports gevent

    init_gevent()


def _file_bytes(variable: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"{error.strerror}; correct {variable}, which names it"
        raise OSError(error.errno, message, path) from error


def _checked_token(token: str) -> str:
    """Returns the token. The error for one that cannot be sent does not contain it."""
    if len(token) > _MAX_TOKEN_CHARACTERS:
        raise Unauthenticated(
            why=f"its token has {len(token):,} characters; a header carries at most "
            f"{_MAX_TOKEN_CHARACTERS:,}"
        )
    for place, character in enumerate(token, start=1):
        if not "!" <= character <= "~":
            raise Unauthenticated(
                why=f"its token has at character {place:,} a space, a control character, or one "
                "that is not ASCII: read it from its source again"
            )
    return token
