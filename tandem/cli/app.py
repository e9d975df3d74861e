"""Lists the commands of `tandem`; each has its own module, which its first call imports."""

import sys
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from tandem.cli.command_line import SETTINGS, CommandLine, Row, run
from tandem.cli.terminal.console import out
from tandem.installation import __version__

_MODELS: Final[Mapping[str, Row]] = {
    "add": ("models.add_model:add", "Export a model for Triton, and verify its answers."),
    "add-neighbours": (
        "models.add_neighbours:add_neighbours",
        "Add a neighbour model (LeaPRR) to the served model.",
    ),
    "calibrate": (
        "models.calibrate:calibrate",
        "Fit match probabilities and the adaptive-depth rule.",
    ),
    "swap": ("models.swap:swap", "Make a running Tandem serve another version."),
    "combine": ("models.combine:combine", "Combine two checkpoints into one (Sep+Coop)."),
    "list": ("models.models:list_models", "List the models of a repository."),
    "describe": ("models.models:describe", "Show the model of a running Tandem, and its limits."),
    "verify": ("models.verify:verify", "Check the model's files, load and try them."),
    "remove": ("models.models:remove", "Delete our model's files."),
}
_INDEX: Final[Mapping[str, Row]] = {
    "list": (
        "index.index_state:list_indexes",
        "List the indexes that there are, their items, and how far each generation is.",
    ),
    "create": (
        "index.generations:create",
        "Begin a generation of the second model, filled while the first serves.",
    ),
    "promote": (
        "index.promote:promote",
        "Have the other generation serve, once it has every item.",
    ),
    "rollback": (
        "index.generations:roll_back",
        "Have the generation serve again that did before the last promotion.",
    ),
    "items": ("index.items:items", "List the ids of an index's items."),
    "show": ("index.index_state:show", "Show an index: items, index types, live recall."),
    "drop": ("index.remove:drop", "Delete an index with all its items, permanently."),
    "describe": ("index.index:describe", "Show every index shard by shard, for operators."),
    "tune": ("index.index:tune", "Set the type or parameters of an index, permanently."),
    "rebuild": (
        "index.index:rebuild",
        "Rebuild an index in the background, without deleted items.",
    ),
    "backup": (
        "index.index:backup",
        "Have each shard back itself up to its operator's object store.",
    ),
    "compare": (
        "index.compare:compare",
        "Compare two indexes of the same items by judged queries.",
    ),
    "advise": ("index.index:advise", "Measure what other FAISS types would cost."),
}
_GOLDEN: Final[Mapping[str, Row]] = {
    "start": ("golden.start:start", "Pool what systems answer, for people to judge."),
    "judge": ("golden.judge:judge", "Judge a golden set in a browser, until Ctrl-C."),
    "status": ("golden.judge:status", "Show how many judgements are missing."),
}
_NEIGHBOURS: Final[Mapping[str, Row]] = {
    "build": ("neighbours.neighbours:build", "Write the nearest of each picture and caption."),
}
_SHARD: Final[Mapping[str, Row]] = {
    "backup": ("index.shard:backup", "Copy a store while it is served, as of one transaction."),
    "backups": (
        "index.shard:backups",
        "List the backups in a folder, of each store the oldest first.",
    ),
    "verify": (
        "index.shard:verify",
        "Check a store, or a backup, which is put together in a temporary folder.",
    ),
    "restore": ("index.shard:restore", "Restore a shard's store from a backup, after checking it."),
    "grow": ("index.shard:grow", "Raise the size limit of a store, also while served."),
}
_TOKEN: Final[Mapping[str, Row]] = {
    "new": ("serve.token:new", "Print a new token, once, and its lines for the file."),
}
PANELS: Final[Mapping[str, Mapping[str, Row]]] = {
    "Serve": {
        "up": ("serve.up:up", "Start Triton and every service on loopback."),
        "health": ("serve.health:health", "Check that a service is ready."),
        "demo": ("serve.demo:demo", "Show the shipped model on scenes, in one run."),
    },
    "Search": {
        "search": ("search.search:search", "Find images by text, texts by image, or by an item."),
        "replay": ("search.replay:replay", "Repeat a search that a file keeps, and compare."),
        "ingest": ("ingest.ingest:ingest", "Store a corpus: its images and their captions."),
        "set": (
            "index.set_attributes:set_attributes",
            "Change attributes of items: by id, selection or table.",
        ),
        "sync": (
            "ingest.sync:sync",
            "Make an index equal to a source: add, update, rename, remove.",
        ),
        "remove": ("index.remove:remove", "Delete items by id or by selection, permanently."),
        "export": (
            "index.export:export",
            "Write an index to a parquet file: ids, embeddings, attributes.",
        ),
        "index": (_INDEX, "List, show, tune, rebuild and drop indexes."),
    },
    "Train and measure": {
        "train": ("train.train:train", "Train a model by a recipe, and keep the best."),
        "train neighbours": (
            "train.train_neighbours:train_neighbours",
            "Train LeaPRR on lists of neighbours.",
        ),
        "neighbours": (_NEIGHBOURS, "Build the lists that LeaPRR learns from."),
        "evaluate": ("evaluate.evaluate:evaluate", "Measure R@1, R@5 and R@10 in both directions."),
        "golden": (_GOLDEN, "Judge what an index finds, to measure models by it."),
        "compare": ("evaluate.compare:compare", "Compare R@1 of systems on the same queries."),
        "calibrate": (
            "evaluate.calibrate:calibrate",
            "Measure what an index's scores mean, and have its searches use it.",
        ),
        "regions": ("corpora.regions:regions", "Write a detector's regions as one file."),
    },
    "Operate": {
        "models": (_MODELS, "Export, list, verify, swap and delete models."),
        "move": (
            "index.move:move",
            "Move all items to other shards, and let orchestrators follow.",
        ),
        "attach": (
            "index.attach:attach",
            "Check another program's vectors, so that they may be searched.",
        ),
        "shard": (_SHARD, "Verify, back up, restore and grow an item store."),
        "token": (_TOKEN, "Make bearer tokens for callers."),
        "certificates": (
            "serve.certificates:certificates",
            "Write new certificates for the containers.",
        ),
    },
}


class _Tandem(CommandLine):
    panels = PANELS


def _print_version(is_asked: bool) -> None:
    if is_asked:
        out.print(f"tandem {__version__}")
        raise typer.Exit


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
    sys.exit(run(app))
