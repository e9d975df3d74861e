"""`--json`: prints what a command found as one JSON object, in place of what people read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from tandem.cli.options import with_signature
from tandem.cli.terminal.console import out
from tandem.cli.terminal.plain_json import json_text, plain

Function = TypeVar("Function", bound=Callable[..., None])

_JSON = Annotated[bool, typer.Option("--json", help="print one JSON object instead")]


def with_json(command: Function) -> Function:
    """Returns the command with the option `--json`; it gives what it found to `answer`."""

    @functools.wraps(command)
    def answering(*, as_json: bool = False, **options: Any) -> None:  # noqa: ANN401
        out.is_held_back = as_json
        try:
            command(**options)
        finally:
            out.is_held_back = False

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_JSON
    )
    return with_signature(answering, [*signature.parameters.values(), option])  # type: ignore[return-value]


def answer(found: Mapping[str, object]) -> None:
    """Prints the JSON object, if `--json` is given."""
    if out.is_held_back:
        out.file.write(json_text(plain(found)) + "\n")
