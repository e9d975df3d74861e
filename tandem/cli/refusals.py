"""Prints named errors with the variable or option that fixes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tandem.cli.addresses import nobody_there
from tandem.cli.console import errors
from tandem.errors import ServiceUnavailable, TandemError

_HEADER = "; send 'authorization: Bearer TOKEN'"
_MENDS: Final[Mapping[str, str]] = {
    "UNAUTHENTICATED": "set TANDEM_TOKEN to a token of this server (and TANDEM_CERTIFICATE_FILE "
    "and TANDEM_KEY_FILE where it asks for certificates)",
    "PERMISSION_DENIED": "set TANDEM_TOKEN to another token; tandem token new makes one, --scope "
    "says what it may",
    "TEXT_TOO_LONG": "or give --truncation-policy truncate",
}


def described(error: TandemError) -> str:
    """Returns the error's message, with the option or variable that fixes it if there is one."""
    # Programs send headers; people set variables.
    message = error.message.removesuffix(_HEADER)
    fix = _MENDS.get(error.reason)
    return message if fix is None else f"{message}; {fix}"


def print_error(error: TandemError) -> None:
    """Prints the error on one line of stderr; in simpler words if nothing listens."""
    unreached = (
        nobody_there(error.metadata.get("service", ""))
        if isinstance(error, ServiceUnavailable)
        else None
    )
    errors.refusal(error.reason, unreached or described(error))
