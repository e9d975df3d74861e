"""Wires the `tandem` command; each subcommand has its own module."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import typer

from tandem import __version__
from tandem.cli.command_line import SETTINGS, Command, CommandLine, run
from tandem.cli.corpora import regions
from tandem.cli.evaluate import compare, evaluate
from tandem.cli.index import index, remove, shard
from tandem.cli.ingest import ingest
from tandem.cli.models import models
from tandem.cli.neighbours import neighbours
from tandem.cli.search import search
from tandem.cli.serve import certificates, demo, health, token, up
from tandem.cli.terminal.console import out
from tandem.cli.terminal.json_answer import with_json
from tandem.cli.train import train, train_neighbours
from tandem.local.prometheus import PrometheusUnavailable
from tandem.local.stack import StackFailed
from tandem.triton.server import TritonUnavailable


def _print_version(is_asked: bool) -> None:
    if is_asked:
        out.print(f"tandem {__version__}")
        raise typer.Exit


class _Tandem(CommandLine):
    panels: ClassVar[Mapping[str, Sequence[str]]] = {
        "Serve": ("up", "health", "demo"),
        "Search": ("search", "ingest", "remove", "index"),
        "Train and measure": (
            *("train", "train neighbours", "neighbours", "evaluate", "compare", "regions"),
        ),
        "Operate": ("models", "shard", "token", "certificates"),
    }


app = typer.Typer(
    name="tandem",
    help="Find images by text and texts by images: retrieve fast, rerank smart.",
    cls=_Tandem,
    context_settings=SETTINGS,
    # Plain help, because rich's tables cut option names in a narrow terminal.
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("up", cls=Command)(up.up)
app.command("ingest", cls=Command)(with_json(ingest.ingest))
app.command("search", cls=Command)(search.search)
app.command("remove", cls=Command)(with_json(remove.remove))
app.command("evaluate", cls=Command)(with_json(evaluate.evaluate))
app.command("compare", cls=Command)(with_json(compare.compare))
app.command("regions", cls=Command)(regions.regions)
app.command("train", cls=Command)(train.train)
app.command("train neighbours", cls=Command)(train_neighbours.train_neighbours)
app.command("demo", cls=Command)(demo.demo)
app.command("health", cls=Command)(with_json(health.health))
app.command("certificates", cls=Command)(certificates.certificates)
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
    """Find images by text and texts by images: retrieve fast, rerank smart."""


def main() -> None:
    """Runs the command line; a named error is one line on stderr, with exit status 1."""
    sys.exit(run(app, (ValueError, OSError, StackFailed, TritonUnavailable, PrometheusUnavailable)))
