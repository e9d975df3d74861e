"""`tandem models`: what Triton loads."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.console import out
from tandem.model_io.precision import Precision, native_precision
from tandem.modeling.default_checkpoint import default_checkpoint

app = typer.Typer(help="Makes the models that Triton loads.", no_args_is_help=True)


@app.callback()
def models() -> None:
    """Makes the models that Triton loads."""


@app.command("export")
def export(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="a checkpoint's folder; the shipped one unless given")
    ] = None,
    repository: Annotated[Path, typer.Option(help="Triton's model repository")] = Path(
        "model_repository"
    ),
    precision: Annotated[
        Precision | None,
        typer.Option(help="of the matrix products; unset takes bf16 where this CPU has it"),
    ] = None,
) -> None:
    """Exports a checkpoint to TorchScript with config.pbtxt and manifest.json."""
    # Here: torch takes seconds, which `tandem --help` need not wait.
    from tandem.modeling.export import export_model

    chosen = precision or native_precision()
    manifest = export_model(checkpoint or default_checkpoint(), repository, chosen)
    out.print(f"{repository}: model {manifest.fingerprint[:12]}, {manifest.precision}")
