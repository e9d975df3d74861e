"""`tandem models add-neighbours`: exports trained LeaPRR networks for Triton."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.options import DEFAULT_REPOSITORY, REPOSITORY
from tandem.cli.terminal.console import out
from tandem.cli.terminal.progress import LongWork
from tandem.lab.neighbours.leaprr.saved_model import load_leaprr
from tandem.lab.neighbours.leaprr.served_networks import install_leaprr, trained_over
from tandem.lab.neighbours.lists.corpus_neighbours import base_name
from tandem.model_io.repository.model_repository import our_manifest


def add_neighbours(
    folder: Annotated[
        Path, typer.Argument(help="folder of trained LeaPRR networks, or their file", exists=True)
    ],
    repository: REPOSITORY = DEFAULT_REPOSITORY,
) -> None:
    """Add a neighbour model (LeaPRR) to the served model.

    Its scores are verified. It must have been trained over the embeddings of that model. Restart
    Triton and rerank_svc; then searches can ask for an order by neighbours. One that was trained
    over BE + CE orders only searches of the same --rerank-k.
    """
    base = our_manifest(repository)
    with LongWork(often_short=True) as work:
        work.show("read the networks", 0)
        path, base_fingerprint, rerank_k = trained_over(folder)
        if base_fingerprint not in (None, base.fingerprint):
            raise ValueError(
                f"{folder} was trained over model {str(base_fingerprint)[:12]}, and {repository} "
                f"holds {base.fingerprint[:12]}: add that model, or train over this one"
            )
        model = load_leaprr(path)
        work.show("export, and compare with the networks themselves", 0)
        made = install_leaprr(model, base.fingerprint, repository, rerank_k)
    out.print(
        f"{repository}: neighbour model {made.fingerprint[:12]} over "
        f"{made.base_fingerprint[:12]}, orders {made.text_query.item_count} images for a "
        f"text and {made.image_query.item_count} texts for an image, over "
        f"{base_name(made.rerank_k)}"
    )
    if base_fingerprint is None:
        out.print(f"{path} does not name the model that it was trained over; this one is assumed")
