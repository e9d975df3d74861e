"""`tandem token new`: a bearer token, and what the services' token file says of it."""

import secrets
from hashlib import sha256
from typing import Annotated

import typer

from tandem.chassis.tokens import Scope
from tandem.cli.command_line import Command
from tandem.cli.console import errors, one_line, out

app = typer.Typer(help="Makes bearer tokens for callers.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Makes bearer tokens for callers."""


@app.command(cls=Command)
def new(
    name: Annotated[str, typer.Argument(help="whose token it is, for logs and quotas")],
    scope: Annotated[
        list[Scope], typer.Option(help="what it lets its bearer do; may be given several times")
    ] = [Scope.SEARCH],  # noqa: B006 (typer's way)
    index: Annotated[
        list[str], typer.Option(help="index that it is good for; may be given several times")
    ] = ["*"],  # noqa: B006
    requests_per_second: Annotated[
        float | None, typer.Option(help="most calls a second", min=0.001)
    ] = None,
    pairs_per_second: Annotated[
        float | None, typer.Option(help="most pairs a second for the cross-encoder", min=0.001)
    ] = None,
) -> None:
    """Prints a new token on stdout, once, and on stderr the lines for the token file."""
    token = secrets.token_urlsafe(32)
    lines = [
        f"[tokens.{_key(name)}]",
        f'sha256 = "{sha256(token.encode()).hexdigest()}"',
        f"scopes = [{', '.join(_key(each.value, quoted=True) for each in scope)}]",
        f"indexes = [{', '.join(_key(each, quoted=True) for each in index)}]",
    ]
    if requests_per_second is not None:
        lines.append(f"requests_per_second = {requests_per_second:g}")
    if pairs_per_second is not None:
        lines.append(f"pairs_per_second = {pairs_per_second:g}")
    errors.print("\n".join(lines))
    out.print(token)


def _key(text: str, *, quoted: bool = False) -> str:
    """Returns TOML's spelling of a key, or of a string where `quoted`."""
    if not quoted and text.isascii() and text.replace("-", "").replace("_", "").isalnum():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if one_line(text) != text:  # neither can be read back from the lines
        raise typer.BadParameter("a name has no control characters in it, nor half of a character")
    return f'"{escaped}"'
