"""`tandem ingest`: stores a corpus in an index."""

import typer

from tandem.cli.ingest.source_job import SourceJob, SourceOptions
from tandem.cli.options import with_options
from tandem.cli.terminal.json_answer import with_json


@with_json
@with_options
def ingest(asked: SourceOptions) -> None:
    """Store a corpus: its images and their captions.

    Captions are separate items. What was stored before and has not changed is not read again.
    """
    with SourceJob(asked) as job:
        job.compare()
        sent = job.until_done(job.send)
        if not sent.read_count + sent.unchanged_count:
            raise ValueError(
                f"{asked.corpus}: no picture of split {asked.split!r} was left to ingest"
            )
    if job.counts.refused:
        raise typer.Exit(1)
