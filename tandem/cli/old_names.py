"""Names that options had in the release before, understood with a warning for one release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tandem.cli.console import errors

_REPOSITORY: Final = {"--repository": "--model-repository"}

OLD_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "models add": _REPOSITORY,
    "models list": _REPOSITORY,
    "models verify": _REPOSITORY,
    "models remove": _REPOSITORY,
    "models swap": _REPOSITORY,
}
"""New by old name, by command."""


def with_new_names(command: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with today's names of options; warns of each old one on stderr."""
    names = OLD_NAMES.get(" ".join(command), {})
    renamed: list[str] = []
    arguments = list(arguments)
    for number, argument in enumerate(arguments):
        if argument == "--":
            return renamed + arguments[number:]
        name, equals, value = argument.partition("=")
        if (new := names.get(name)) is not None:
            errors.print(f"warning: {name} is {new} now; the old name goes with the next release")
            argument = f"{new}{equals}{value}"
        renamed.append(argument)
    return renamed
