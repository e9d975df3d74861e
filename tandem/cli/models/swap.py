"""`tandem models swap`: changes the model version without stopping searches."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.options import DEFAULT_REPOSITORY
from tandem.cli.terminal.console import out
from tandem.model_io.repository.model_repository import check_swappable, our_manifest
from tandem.model_io.repository.model_version import (
    Serving,
    Wanted,
    serving,
    version_folder,
    version_numbers,
    wanted,
    write_wanted,
)
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.swap_attendance import is_attended, swap_stage
from tandem.modeling.export.version_export import export_version

_LOOK_SECONDS = 0.2


def swap(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="folder of the checkpoint for the next version")
    ] = None,
    to: Annotated[int | None, "an existing version to return to"] = None,
    repository: Annotated[
        Path,
        typer.Option("--model-repository", help="model repository of a running tandem up --swaps"),
    ] = DEFAULT_REPOSITORY,
    precision: Annotated[Precision | None, "precision; by default the repository's"] = None,
    wait_seconds: Annotated[
        float, typer.Option(help="seconds to wait until it serves or is refused", min=1.0)
    ] = 180.0,
) -> None:
    """Make a running Tandem serve another version.

    The old one serves until the new one does. The new version must have equal embeddings: its
    cross-encoder, precision or export may differ. Exits 1 with the cause if it is refused.
    """
    if (checkpoint is None) == (to is None):
        raise typer.BadParameter("give a checkpoint, or --to a version")
    check_swappable(our_manifest(repository), repository)
    before = serving(repository).version
    if to is not None and to not in version_numbers(repository):
        raise ValueError(f"{version_folder(repository, to)} is not there")
    _check_attended(repository)
    if to is not None:
        version = to
    else:
        assert checkpoint is not None
        out.print(f"{repository}: {checkpoint} is exported, which takes a minute or more")
        version = export_version(checkpoint, repository, precision)
        out.print(f"{repository}: version {version} is exported")
        _check_attended(repository)
    out.print(f"{repository}: version {version} is requested; version {before} serves meanwhile")
    outcome = ask_for(repository, version, wait_seconds, out.print)
    if outcome.refusal:
        raise ValueError(f"version {outcome.version} keeps serving: {outcome.refusal}")
    out.print(f"{repository}: version {version} serves, after version {before}")


def _check_attended(repository: Path) -> None:
    if not is_attended(repository):
        raise ValueError(
            f"no tandem up --swaps runs with {repository}: start it (tandem up --swaps "
            f"--model-repository {repository}), and swap when it serves"
        )


def ask_for(
    repository: Path,
    version: int,
    wait_seconds: float,
    show: Callable[[str], None] | None = None,
) -> Serving:
    """Requests a version, shows each stage, and returns the outcome.

    Raises ValueError if nothing takes the request in time, and withdraws it.
    """
    request = Wanted(request_id=uuid.uuid4().hex, version=version)
    write_wanted(repository, request)
    deadline_time = time.monotonic() + wait_seconds
    shown = ""
    while (outcome := serving(repository)).request_id != request.request_id:
        stage = swap_stage(repository)
        if stage and stage != shown:
            shown = stage
            if show is not None:
                show(stage)
        if time.monotonic() > deadline_time:
            if wanted(repository) == request:
                write_wanted(repository, None)
            raise ValueError(
                f"version {version} was not taken within {wait_seconds:.0f} s, and version "
                f"{outcome.version} still serves; the last stage was {shown!r}; the log of "
                "tandem up --swaps says more"
            )
        time.sleep(_LOOK_SECONDS)
    return outcome
