"""`tandem models verify`: checks the models of a repository."""

from pathlib import Path
from typing import Annotated

from tandem.cli.options import DEFAULT_REPOSITORY, REPOSITORY
from tandem.cli.terminal.console import out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.modeling.export.verification import verify_repository


@with_json
def verify(
    repository: REPOSITORY = DEFAULT_REPOSITORY,
    checkpoint: Annotated[Path | None, "checkpoint whose answers the models must reproduce"] = None,
) -> None:
    """Check the model's files, load and try them.

    Exits 1 with the cause if they are not whole, or give other answers.
    """
    with LongWork(often_short=True) as work:
        work.show("load and try the model", 0)
        manifest = verify_repository(repository, checkpoint)
    answer({"fingerprint": manifest.fingerprint, "is_whole": True})
    against = "" if checkpoint is None else f", gives what {checkpoint} gives"
    out.print(f"{repository}: model {manifest.fingerprint[:12]} is whole and answers{against}")
