"""Prints named errors with the variable or option that fixes them."""

import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

from tandem.cli.options import nobody_there
from tandem.cli.terminal.console import errors
from tandem.errors import ServiceUnavailable, TandemError

OFFERED: Final[ContextVar[frozenset[str] | None]] = ContextVar("OFFERED", default=None)
"""The options of the command that runs."""

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
_COMMAND = re.compile(r"\btandem [a-z]")
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
    return suited(message if fix is None else f"{message}; {fix}")


def suited(message: str) -> str:
    """Returns a message without advice on options that the command at hand does not have.

    Errors of corpora, galleries and texts end many commands, of which not all can do what they
    advise. Each advice is a part after a semicolon; one that names its command stays.
    """
    if (offered := OFFERED.get()) is None:
        return message
    fault, *advice = message.split("; ")
    fits = [
        each
        for each in advice
        if _COMMAND.search(each) or offered.issuperset(_OPTION.findall(each))
    ]
    return "; ".join([fault, *fits])


def print_error(error: TandemError) -> None:
    """Prints the error on one line of stderr; in simpler words if nothing listens."""
    unreached = (
        nobody_there(error.metadata.get("service", ""))
        if isinstance(error, ServiceUnavailable)
        else None
    )
    errors.refusal(error.reason, unreached or described(error))
