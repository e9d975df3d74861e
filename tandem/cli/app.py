"""`tandem`: one command a module, wired here."""

import sys

import typer

from tandem.cli import (
    compare,
    demo,
    evaluate,
    health,
    index,
    ingest,
    models,
    search,
    shard,
    token,
    train,
    up,
)
from tandem.cli.console import errors
from tandem.cli.stack import StackFailed
from tandem.errors import TandemError
from tandem.model_io.triton_server import TritonUnavailable

app = typer.Typer(
    name="tandem",
    help="Finds images by text and texts by images: retrieve fast, rerank smart.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("ingest")(ingest.ingest)
app.command("search")(search.search)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("train")(train.train)
app.command("demo")(demo.demo)
app.command("health")(health.health)
app.add_typer(models.app, name="models")
app.add_typer(index.app, name="index")
app.add_typer(shard.app, name="shard")
app.add_typer(token.app, name="token")


def main() -> None:
    """Runs the command line; a named error is one line on stderr and exit status 1."""
    try:
        app()
    except TandemError as error:
        errors.print(f"[bold red]{error.reason}[/] {error.message}", highlight=False)
        sys.exit(1)
    except (ValueError, OSError, StackFailed, TritonUnavailable) as error:
        errors.print(str(error), markup=False, highlight=False)
        sys.exit(1)
