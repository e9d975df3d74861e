"""`tandem models combine`: puts two checkpoints into one."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.terminal.console import out
from tandem.modeling import separate_checkpoint


def combine(
    bi_encoder: Annotated[Path, typer.Argument(help="checkpoint with the BE")],
    cross_encoder: Annotated[Path, typer.Argument(help="checkpoint with the CE")],
    folder: Annotated[Path, "folder of the new checkpoint"],
) -> None:
    """Combine two checkpoints into one (Sep+Coop).

    It works like any other. Train the CE from the BE:
    tandem train cross_encoder_after_be --init BE.
    """
    made = separate_checkpoint.combine(bi_encoder, cross_encoder, folder)
    out.print(f"{folder}: BE of {bi_encoder}, CE of {cross_encoder}, {made.weights_sha256[:12]}")
