"""`tandem models list`, `describe` and `remove`: the models that Triton loads."""

from typing import Annotated

import typer

from tandem.cli.options import ADDRESS, DEFAULT_REPOSITORY, REPOSITORY
from tandem.cli.terminal.console import out, shown
from tandem.cli.terminal.json_answer import answer, plain, with_json
from tandem.client import Access, Client, ModelDescription
from tandem.model_io.repository.model_repository import (
    StoredModel,
    our_manifest,
    remove_model,
    stored_models,
)


@with_json
def list_models(repository: REPOSITORY = DEFAULT_REPOSITORY) -> None:
    """List the models of a repository."""
    found = stored_models(repository)
    answer({"models": found})
    names = ["name", "family", "precision", "fingerprint", "dim", "checkpoint", "MB", "config"]
    out.rows([names, *map(_cells, found)], left=[0, 1, 2, 3, 5, 7])


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
    out.rows(list(rows.items()), left=[0, 1])


def remove(
    repository: REPOSITORY = DEFAULT_REPOSITORY,
    yes: Annotated[bool, "do not ask"] = False,
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
