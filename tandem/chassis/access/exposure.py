"""Warns at start of what the settings leave open, and names the settings that close it."""

import ipaddress
from collections.abc import Iterator, Sequence

from tandem.chassis.access.guard import Guard
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.tls import Identity
from tandem.contract.methods import AccessRule

log = get_logger()

_CERTIFICATES = "TLS_CERTIFICATE_FILE, TLS_KEY_FILE and TLS_AUTHORITY_FILE"
_NAMES = f"{_CERTIFICATES}, and TLS_PEER_NAMES for who may call"


def warn_of_exposure(
    address: str, service_names: Sequence[str], identity: Identity | None, guard: Guard
) -> None:
    """Logs a warning for each thing that is open at `address`, a `host:port`."""
    for event, mend in _exposures(address, service_names, identity, guard):
        log.warning(event, address=address, mend=mend)


def is_loopback(address: str) -> bool:
    """Returns whether only this machine can call a `host:port`."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _exposures(
    address: str, service_names: Sequence[str], identity: Identity | None, guard: Guard
) -> Iterator[tuple[str, str]]:
    """Yields what is open, and the settings that close it."""
    rules = {rule for path, rule in guard.access.items() if path.split("/")[1] in service_names}
    has_internal, has_public = AccessRule.INTERNAL in rules, bool(rules - {AccessRule.INTERNAL})
    knows_callers = identity is not None and identity.is_client_certificate_required
    if not is_loopback(address):
        if guard.tokens is None and not knows_callers:
            mends = ["set ACCESS_TOKEN_FILE"] if has_public else []
            mends += [f"set {_NAMES}"] if has_internal else []
            yield (
                "callers from other machines need no credentials",
                " and ".join(mends) or f"set {_CERTIFICATES}",
            )
        if guard.tokens is not None and identity is None:
            yield (
                "other machines send tokens in plain text",
                f"set {_CERTIFICATES}; TLS_CLIENT_CERTIFICATE_REQUIRED=false if callers have none",
            )
    if guard.tokens is not None and has_internal and not knows_callers:
        yield "internal methods need no token", f"set {_NAMES}"
