"""`tandem ingest`: stores a corpus in an index."""

from tandem.cli.ingest.source_job import SourceJob, SourceOptions
from tandem.cli.options import with_options
from tandem.cli.terminal.console import errors
from tandem.cli.terminal.json_answer import with_json


@with_json
@with_options
def ingest(asked: SourceOptions) -> None:
    """Store a corpus: its images and their captions.

    Captions are separate items. What was stored before and has not changed is not read again.
    """
    with SourceJob(asked) as job:
        sent = job.until_done(job.send)
        if not sent.read_count + sent.unchanged_count:
            raise ValueError(
                f"{asked.corpus}: no {job.unit[:-1]} of split {asked.split!r} was left to ingest"
            )
        gone_count = sum(row.record_id not in sent.seen for row in job.job.every())
        if gone_count and asked.count is None and asked.corpus == job.asked.corpus:
            errors.print(
                f"{gone_count:,} stored items are no longer in {asked.corpus} and stay; tandem "
                "sync removes them"
            )
