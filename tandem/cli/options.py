"""Makes a command's options of a record's fields, and defines those that several commands share."""

import functools
import inspect
import socket
from collections.abc import Callable, Container, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

import typer

from tandem.cli.terminal.console import errors
from tandem.contract.address import Address, AddressInvalid
from tandem.contract.filtering.filter_expression import FilterTextInvalid, parse_filter
from tandem.contract.filtering.filters import Filter

DEFAULT_ADDRESS = "127.0.0.1:7400"
MAX_SEED: Final = 2**32 - 1
"""The largest seed that torch, random and NumPy all accept."""
MAX_SEED_COUNT: Final = 1_000
"""More runs than one command can train; the list of a mistyped number would fill the memory."""
_KNOCK_SECONDS = 1.0

_Command = TypeVar("_Command", bound=Callable[..., None])


def with_options(
    command: Callable[..., None], more: Sequence[inspect.Parameter] = ()
) -> Callable[..., None]:
    """Returns the command with an option for each field of the record that it takes.

    It gets the options of `more` as keywords.
    """
    record = next(iter(inspect.signature(command, eval_str=True).parameters.values())).annotation
    hints = get_type_hints(record, include_extras=True)
    own = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(record)
    ]

    @functools.wraps(command)
    def called(**options: Any) -> None:  # noqa: ANN401
        others = {each.name: options.pop(each.name, each.default) for each in more}
        command(record(**options), **others)

    return with_signature(called, [*own, *more])


def with_signature(command: _Command, keywords: list[inspect.Parameter]) -> _Command:
    """Returns the command, of which Typer reads these parameters."""
    shown: Any = command
    shown.__signature__ = inspect.Signature(keywords)
    shown.__annotations__ = {each.name: each.annotation for each in keywords}
    return command


def with_help(command: _Command) -> _Command:
    """Returns the command, whose parameters of a type and a sentence are options with that help.

    One that is False by default is a flag, without a --no-….
    """
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    return with_signature(command, [_with_help(each) for each in parameters])


def _with_help(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, *said = get_args(parameter.annotation)
    if get_origin(parameter.annotation) is not Annotated or not isinstance(said[0], str):
        return parameter
    names = [flag_of(parameter.name)] if parameter.default is False else []
    return parameter.replace(annotation=Annotated[kind, typer.Option(*names, help=said[0])])


def flag_of(name: str) -> str:
    """Returns how a parameter is typed, as in --no-cache."""
    return f"--{name.replace('_', '-')}"


def arguments_of(record: Any, but: Container[str]) -> list[str]:  # noqa: ANN401
    """Returns how a command's options are typed, without those of some fields."""
    arguments: list[str] = []
    hints = get_type_hints(type(record), include_extras=True)
    for each in fields(record):
        value = getattr(record, each.name)
        if each.name in but or value is None or value is False:
            continue
        # Within Annotated, an option's own name is in the place of its default.
        own_name = getattr(hints[each.name].__metadata__[0], "default", None)
        flag = own_name if isinstance(own_name, str) else flag_of(each.name)
        if value is True:
            arguments.append(flag)
        else:
            values = value if isinstance(value, list) else [value]
            arguments += [part for one in values for part in (flag, str(one))]
    return arguments


def check_seeds(first: int, count: int) -> None:
    """Raises ValueError for seeds that end above the largest."""
    if first + count - 1 > MAX_SEED:
        raise ValueError(f"--seeds {count} from --seed {first} on end above {MAX_SEED:,}")


def checked(given: Any) -> Any:  # noqa: ANN401  one address, several or none
    """Returns validated addresses; raises BadParameter, which says what to write."""
    if not isinstance(given, str):
        return given and [checked(each) for each in given]
    try:
        return Address.parse(given).target
    except AddressInvalid as error:
        raise typer.BadParameter(str(error)) from None


def user_path(text: str) -> Path:
    """Returns the path with "~" and "~user" expanded.

    Raises ValueError if there is no such home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(
            f"{text}: there is no home folder for {Path(text).parts[0]}; write the whole path"
        ) from None


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


REPOSITORY = Annotated[Path, typer.Option("--model-repository", help="Triton's model repository")]
DEFAULT_REPOSITORY: Final = Path("model_repository")
ADDRESS = Annotated[
    str,
    typer.Option(
        help="host:port of the orchestrator; tandem up prints it",
        envvar="TANDEM_ADDRESS",
        callback=checked,
    ),
]


def parsed_where(expression: str) -> Filter:
    """Returns the filter of --where; ends with status 2, and shows where it is wrong."""
    try:
        return parse_filter(expression)
    except FilterTextInvalid as error:
        # Unwrapped, or its mark would be below another character.
        errors.print(f"--where: {error.pointed_out()}")
        raise typer.Exit(2) from error
