"""Options that several commands share."""

import socket
from typing import Annotated

import typer

from tandem.contract.address import Address, AddressInvalid

DEFAULT_ADDRESS = "127.0.0.1:7400"
_KNOCK_SECONDS = 1.0


def checked(text: str) -> str:
    """Returns a validated address; raises BadParameter, which says what to write."""
    try:
        return Address.parse(text).target
    except AddressInvalid as error:
        raise typer.BadParameter(str(error)) from None


def all_checked(texts: list[str]) -> list[str]:
    """Returns validated addresses."""
    return [checked(text) for text in texts]


def nobody_there(address: str) -> str | None:
    """Connects to an address; returns a message if nothing listens, or the host is unknown.

    Returns None if something listens, or if a proxy hides it.
    """
    try:
        place = Address.parse(address)
    except AddressInvalid:
        return None
    if place.host is None or place.port is None:
        return None
    try:
        socket.create_connection((place.host, place.port), _KNOCK_SECONDS).close()
    except ConnectionRefusedError:
        return (
            f"nothing listens at {address}: start it with `tandem up`, or give by --address or "
            "TANDEM_ADDRESS what tandem up printed"
        )
    except socket.gaierror as error:
        return f"{address}: no machine is found by that name ({error.strerror}); check --address"
    except OSError:
        return None
    return None


ADDRESS = Annotated[
    str,
    typer.Option(
        help="host:port of the orchestrator; tandem up prints it",
        envvar="TANDEM_ADDRESS",
        callback=checked,
    ),
]
