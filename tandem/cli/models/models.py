"""`tandem models`: manages the models that Triton loads."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tandem.cli.addresses import ADDRESS
from tandem.cli.command_line import Command
from tandem.cli.models.add_model import add
from tandem.cli.models.add_neighbours import add_neighbours
from tandem.cli.models.calibrate import calibrate
from tandem.cli.models.swap import swap
from tandem.cli.terminal.console import out, shown
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.plain_json import plain
from tandem.cli.terminal.progress import LongWork
from tandem.client import Access, Client, ModelDescription
from tandem.repository.model_repository import (
    StoredModel,
    our_manifest,
    remove_model,
    stored_models,
)

app = typer.Typer(help="Export, list, verify, swap and delete models.", no_args_is_help=True)

app.command("add", cls=Command)(add)
app.command("add-neighbours", cls=Command)(add_neighbours)
app.command("calibrate", cls=Command)(calibrate)
app.command("swap", cls=Command)(swap)

REPOSITORY = Annotated[Path, typer.Option("--model-repository", help="Triton's model repository")]
DEFAULT_REPOSITORY = Path("model_repository")


@app.command("combine", cls=Command)
def combine_two(
    bi_encoder: Annotated[Path, typer.Argument(help="checkpoint with the BE")],
    cross_encoder: Annotated[Path, typer.Argument(help="checkpoint with the CE")],
    folder: Annotated[Path, typer.Option(help="folder of the new checkpoint")],
) -> None:
    """Combine two checkpoints into one (Sep+Coop).

    It works like any other. Train the CE from the BE:
    tandem train cross_encoder_after_be --init BE.
    """
    from tandem.modeling.separate_checkpoint import combine

    made = combine(bi_encoder, cross_encoder, folder)
    out.print(f"{folder}: BE of {bi_encoder}, CE of {cross_encoder}, {made.weights_sha256[:12]}")


@app.command("list", cls=Command)
@with_json
def list_models(repository: REPOSITORY = DEFAULT_REPOSITORY) -> None:
    """List the models of a repository."""
    # Fits 80 columns; a longer name wraps.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in (
        "name",
        "family",
        "precision",
        "fingerprint",
        "dim",
        "checkpoint",
        "MB",
        "config",
    ):
        table.add_column(heading, justify="right" if heading in ("dim", "MB") else "left")
    found = stored_models(repository)
    answer({"models": found})
    for model in found:
        table.add_row(*_cells(model))
    out.print(table)


@app.command("show", cls=Command, hidden=True)
@app.command("describe", cls=Command)
@with_json
def describe(address: ADDRESS = "127.0.0.1:7400") -> None:
    """Show the model of a running Tandem, and its limits."""
    with Client(address, access=Access.from_environment()) as client:
        model = client.describe_model()
    answer(plain(model))
    calibration, rule = model.probability_calibration, model.adaptive_depth_rule
    rows = {
        "fingerprint": model.fingerprint,
        "version": str(model.version),
        "family": model.family,
        "precision": model.precision,
        "embedding": f"{model.embedding_dimension} dimensions",
        "text": f"{model.max_text_token_count} tokens, {model.max_text_bytes:,} bytes",
        "image": f"{model.max_region_count} regions of {model.region_feature_width:,} features"
        if model.region_feature_width
        else f"{model.max_image_bytes:,} bytes, {model.max_image_pixel_count:,} pixels",
        "match probability": "withheld (UNCALIBRATED): calibrate the model"
        if calibration is None
        else f"sigmoid({calibration.scale:g} x match logit {calibration.bias:+g})",
        "adaptive depth": "no rule"
        if rule is None
        else f"{rule.first_count} candidates, then {rule.further_count} at a time until the "
        f"chance of a better one is below {rule.stop_chance:g}",
        "neighbours": _neighbours(model),
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    out.print(table)


@app.command("verify", cls=Command)
@with_json
def verify(
    repository: REPOSITORY = DEFAULT_REPOSITORY,
    checkpoint: Annotated[
        Path | None, typer.Option(help="checkpoint whose answers the models must reproduce")
    ] = None,
) -> None:
    """Check the model's files, load and try them.

    Exits 1 with the cause if they are not whole, or give other answers.
    """
    from tandem.modeling.export.verification import verify_repository

    with LongWork(often_short=True) as work:
        work.show("load and try the model", 0)
        manifest = verify_repository(repository, checkpoint)
    answer({"fingerprint": manifest.fingerprint, "is_whole": True})
    against = "" if checkpoint is None else f", gives what {checkpoint} gives"
    out.print(f"{repository}: model {manifest.fingerprint[:12]} is whole and answers{against}")


@app.command("remove", cls=Command)
def remove(
    repository: REPOSITORY = DEFAULT_REPOSITORY,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete our model's files.

    config.pbtxt and foreign files stay.
    """
    manifest = our_manifest(repository)
    what = f"model {manifest.fingerprint[:12]}, {manifest.precision}"
    if not yes:
        typer.confirm(shown(f"Delete {what} from {repository}?"), abort=True)
    deleted = remove_model(repository)
    out.print(f"{repository}: deleted {what}, {len(deleted)} files; tandem models add restores it")


def _neighbours(model: ModelDescription) -> str:
    if (neighbours := model.neighbour_model) is None:
        return "no model"
    fit = "" if neighbours.base_fingerprint == model.fingerprint else ", of another model"
    return (
        f"{neighbours.fingerprint[:12]}{fit}: {neighbours.text_query_item_count} images for a "
        f"text, {neighbours.image_query_item_count} texts for an image"
    )


def _cells(model: StoredModel) -> list[str]:
    size = "none" if model.file_bytes is None else f"{model.file_bytes / 1e6:.1f}"
    if (neighbours := model.neighbours) is not None:
        config = "own" if model.is_config_ours else "edited"
        return [model.name, "leaprr", "fp32", neighbours.fingerprint[:12], "", "", size, config]
    manifest = model.manifest
    if manifest is None:
        return [model.name, "not ours", "", "", "", "", size, ""]
    return [
        model.name,
        manifest.family,
        manifest.precision,
        manifest.fingerprint[:12],
        str(manifest.embedding_dim),
        str(manifest.checkpoint.get("weights_sha256", ""))[:12],
        size,
        "own" if model.is_config_ours else "edited",
    ]
