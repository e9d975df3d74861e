"""Wires the `tandem` command; each subcommand has its own module."""

import sys
from typing import Annotated

import typer

from tandem import __version__
from tandem.cli import (
    certificates_command,
    compare,
    demo,
    evaluate,
    health,
    index,
    ingest,
    models,
    neighbours,
    regions,
    remove,
    search,
    shard,
    token,
    train,
    train_neighbours,
    up,
)
from tandem.cli.command_line import SETTINGS, Command, CommandLine, run
from tandem.cli.console import out
from tandem.local.prometheus import PrometheusUnavailable
from tandem.local.stack import StackFailed
from tandem.model_io.triton_server import TritonUnavailable


def _print_version(is_asked: bool) -> None:
    if is_asked:
        out.print(f"tandem {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="tandem",
    help="Finds images by text and texts by images: retrieve fast, rerank smart.",
    cls=CommandLine,
    context_settings=SETTINGS,
    # Plain help, because rich's tables cut option names in a narrow terminal.
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up", cls=Command)(up.up)
app.command("ingest", cls=Command)(ingest.ingest)
app.command("search", cls=Command)(search.search)
app.command("remove", cls=Command)(remove.remove)
app.command("evaluate", cls=Command)(evaluate.evaluate)
app.command("compare", cls=Command)(compare.compare)
app.command("regions", cls=Command)(regions.regions)
app.command("train", cls=Command)(train.train)
app.command("train neighbours", cls=Command)(train_neighbours.train_neighbours)
app.command("demo", cls=Command)(demo.demo)
app.command("health", cls=Command)(health.health)
app.command("certificates", cls=Command)(certificates_command.certificates)
app.add_typer(models.app, name="models")
app.add_typer(index.app, name="index")
app.add_typer(neighbours.app, name="neighbours")
app.add_typer(shard.app, name="shard")
app.add_typer(token.app, name="token")


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="print the version and exit"
        ),
    ] = False,
) -> None:
    """Finds images by text and texts by images: retrieve fast, rerank smart."""


def main() -> None:
    """Runs the command line; a named error is one line on stderr, with exit status 1."""
    sys.exit(run(app, (ValueError, OSError, StackFailed, TritonUnavailable, PrometheusUnavailable)))
