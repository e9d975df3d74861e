"""Options that several commands take."""

from typing import Annotated

import typer

from tandem.address import Address, AddressInvalid

DEFAULT_ADDRESS = "127.0.0.1:7400"


def checked(text: str) -> str:
    """Returns an address as it is called; raises BadParameter with what to write."""
    try:
        return Address.parse(text).target
    except AddressInvalid as error:
        raise typer.BadParameter(str(error)) from None


def all_checked(texts: list[str]) -> list[str]:
    """Returns addresses as `checked` does."""
    return [checked(text) for text in texts]


ADDRESS = Annotated[
    str,
    typer.Option(
        help="host:port of the orchestrator; tandem up prints it",
        callback=checked,
    ),
]
