"""`tandem token new`: makes a bearer token, and the lines for the token file."""

import secrets
from hashlib import sha256
from typing import Annotated

import typer

from tandem.chassis.access.tokens import Scope
from tandem.cli.terminal.console import errors, one_line, out


def new(
    name: Annotated[str, typer.Argument(help="name of the caller, for logs and quotas")],
    scope: Annotated[list[Scope], "a scope; may repeat"] = [Scope.SEARCH],  # noqa: B006 (typer's way)
    index: Annotated[list[str], "an index; may repeat"] = ["*"],  # noqa: B006
    requests_per_second: Annotated[
        float | None, typer.Option(help="limit of calls a second", min=0.001)
    ] = None,
    pairs_per_second: Annotated[
        float | None, typer.Option(help="limit of cross-encoder pairs a second", min=0.001)
    ] = None,
) -> None:
    """Print a new token, once, and its lines for the file.

    The token is on stdout, the lines for the token file on stderr.
    """
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
    """Returns a TOML key, or a TOML string if `quoted`."""
    if not quoted and text.isascii() and text.replace("-", "").replace("_", "").isalnum():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if one_line(text) != text:  # TOML cannot represent them here.
        raise typer.BadParameter("a name must not contain control characters or lone surrogates")
    return f'"{escaped}"'
