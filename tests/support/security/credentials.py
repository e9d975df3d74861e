"""What callers show who may not call: each kind, and the status that it is refused with."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import grpc
import trustme

from tandem.chassis.access.tokens import Scope
from tandem.contract.methods import AccessRule
from tests.support.chassis.authority import Files
from tests.support.security.secured_stack import OTHER_INDEX_ID, SecuredStack, token_entry

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE  # what a caller makes of a refused handshake
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED

# A connection of its own for each channel: gRPC shares those of equal ones, and one that was
# refused is not tried again at once.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(frozen=True)
class Shown:
    """What a caller shows: certificates, nothing or plain text, and headers."""

    kind: str
    code: grpc.StatusCode
    """With which it is refused."""
    credentials: grpc.ChannelCredentials | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    speaks_of_index: bool = False
    """Whether it is bad for its index alone."""

    def open(self, address: str) -> grpc.aio.Channel:
        """Returns a channel that makes a new handshake."""
        if self.credentials is None:
            return grpc.aio.insecure_channel(address, options=_OPTIONS)
        return grpc.aio.secure_channel(address, self.credentials, options=_OPTIONS)


def bearer(token: str) -> dict[str, str]:
    """Returns the header that brings a token."""
    return {"authorization": f"Bearer {token}"}


def credentials_of(files: Files) -> grpc.ChannelCredentials:
    """Returns what shows the files' certificate."""
    shown = files.identity().certificates()
    return grpc.ssl_channel_credentials(shown.authorities, shown.key, shown.chain)


def bad_certificates(stack: SecuredStack, folder: Path, token: str) -> Iterator[Shown]:
    """Yields what is rejected where certificates are required, with any token."""
    other = trustme.CA()
    stranger, expired = Files(folder / "stranger"), Files(folder / "expired")
    stranger.write(other, "orchestrator", trusted=(stack.authority,))
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired.write(stack.authority, "orchestrator", not_after=yesterday)
    roots = grpc.ssl_channel_credentials(stack.authority.cert_pem.bytes())
    good = bearer(token)
    yield Shown("plain text", UNAVAILABLE, None, good)
    yield Shown("no certificate", UNAVAILABLE, roots, good)
    yield Shown("another authority's", UNAVAILABLE, credentials_of(stranger), good)
    yield Shown("an expired one", UNAVAILABLE, credentials_of(expired), good)
    another = credentials_of(stack.files["rerank-0"])
    yield Shown("another service's", UNAUTHENTICATED, another, good)


def bad_tokens(
    stack: SecuredStack, door: Door, scope: Scope, credentials: grpc.ChannelCredentials
) -> Iterator[Shown]:
    """Yields the tokens that are no good for a method that asks for `scope`."""
    digest = sha256(door.token.encode()).hexdigest()
    headers = {
        "none": {},
        "an empty header": {"authorization": ""},
        "no token in it": {"authorization": "Bearer"},
        "blanks in it": {"authorization": "Bearer   "},
        "no scheme": {"authorization": door.token},
        "another scheme": {"authorization": f"Basic {door.token}"},
        "another header": {"x-authorization": f"Bearer {door.token}"},
        "a part of one": bearer(door.token[:-1]),
        "an unknown one": bearer("nobody's"),
        "a large one": bearer(door.token * 100),
        "its digest": bearer(digest),
        "one that was removed": bearer(door.removed),
        "another service's": bearer(door.elsewhere),
    }
    for kind, metadata in headers.items():
        yield Shown(kind, UNAUTHENTICATED, credentials, metadata)
    yield Shown("oversized", RESOURCE_EXHAUSTED, credentials, bearer("e" * 65_536))
    yield Shown("another scope", PERMISSION_DENIED, credentials, bearer(f"not-{scope.value}"))
    yield Shown("another index", PERMISSION_DENIED, credentials, bearer("elsewhere"), True)


@dataclass(frozen=True)
class Door:
    """A service that requires tokens: its file, and a token of each kind."""

    path: Path
    token: str
    removed: str
    elsewhere: str
    """Good at the other door."""

    def write(self, *, with_removed: bool) -> None:
        """Has the file let in the good token, and those that are good for less."""
        entries = [token_entry("good", self.token)]
        for scope in Scope:
            others = tuple(each for each in Scope if each is not scope)
            name = f"not-{scope.value}"
            entries.append(token_entry(name, name, scopes=others))
        entries.append(token_entry("elsewhere", "elsewhere", index_id=OTHER_INDEX_ID))
        if with_removed:
            entries.append(token_entry("leaver", self.removed))
        self.path.write_text("\n".join(entries))


def scope_of(access: AccessRule) -> Scope | None:
    """Returns what a token needs for a method; None where only certificates are required."""
    return None if access is AccessRule.INTERNAL else Scope(access.value)
