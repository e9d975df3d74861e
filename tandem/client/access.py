"""What a client shows the orchestrator: a token, certificates, or nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import grpc

from tandem.client.requests import CHANNEL_OPTIONS
from tandem.contract.address import Address
from tandem.errors import Unauthenticated

_FILES = {
    "authority": "TANDEM_AUTHORITY_FILE",
    "certificate": "TANDEM_CERTIFICATE_FILE",
    "key": "TANDEM_KEY_FILE",
}

# All metadata of a call together are at most 8 KiB.
_MAX_TOKEN_CHARACTERS = 4_096


@dataclass(frozen=True, slots=True)
class Access:
    """Without an authority a client talks in plain text, and so sends its token."""

    token: str | None = field(default=None, repr=False)
    authority: bytes | None = None
    """PEM of the authorities whose servers are trusted."""
    certificate: bytes | None = None
    """PEM of the client's own chain, where servers ask for one; with `key`."""
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError where the parts do not go together.

        Raises Unauthenticated for a token that no header carries. Space and line ends around one,
        as a file or `$(<file)` of another tool leaves them, are no part of it.
        """
        if self.token is not None:
            object.__setattr__(self, "token", _checked_token(self.token.strip()) or None)
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a certificate and its key go together; give both")
        if self.certificate is not None and self.authority is None:
            raise ValueError("a certificate is shown over TLS alone; give an authority too")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Returns what TANDEM_TOKEN, TANDEM_AUTHORITY_FILE, _CERTIFICATE_FILE and _KEY_FILE say.

        Raises OSError for a file that cannot be read, and as the class itself.
        """
        values = os.environ if environ is None else environ
        files = {
            name: Path(path).read_bytes()
            for name, variable in _FILES.items()
            if (path := values.get(variable))
        }
        return cls(values.get("TANDEM_TOKEN") or None, **files)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns what goes with each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token is not None else ()

    def open_channel(
        self, address: str, options: Sequence[tuple[str, int | str]] = CHANNEL_OPTIONS
    ) -> grpc.Channel:
        """Returns a channel to host:port; raises AddressInvalid, a ValueError.

        The options are those of a client of searches, which calls nobody that is not serving. A
        proxy that the environment names is gone through, but never to this machine itself.
        """
        place = Address.parse(address)
        options = (*options, *place.channel_options)
        if self.authority is None:
            return grpc.insecure_channel(place.target, options=options)
        return grpc.secure_channel(place.target, self._credentials(), options=options)

    def open_aio_channel(self, address: str) -> grpc.aio.Channel:
        """Returns a channel as `open_channel` does, for the event loop that runs."""
        place = Address.parse(address)
        options = (*CHANNEL_OPTIONS, *place.channel_options)
        if self.authority is None:
            return grpc.aio.insecure_channel(place.target, options=options)
        return grpc.aio.secure_channel(place.target, self._credentials(), options=options)

    def _credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


def _checked_token(token: str) -> str:
    """Returns the token as it is. What is told of one that cannot be sent never has it in it."""
    if len(token) > _MAX_TOKEN_CHARACTERS:
        raise Unauthenticated(
            why=f"its token has {len(token):,} characters, of which a header carries at most "
            f"{_MAX_TOKEN_CHARACTERS:,}"
        )
    for place, character in enumerate(token, start=1):
        if not "!" <= character <= "~":
            raise Unauthenticated(
                why=f"its token has at character {place:,} a space, a control character, or one "
                "that is not ASCII, which cannot be sent: read it from its source again"
            )
    return token
