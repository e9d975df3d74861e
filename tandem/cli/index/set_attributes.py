"""`tandem set`: changes attributes of stored items to those of a table."""

from collections.abc import Iterator
from typing import Annotated

import typer

from tandem.cli.corpora.corpora import COLUMN, ON_ERROR, columns_of, is_table_corpus, open_corpus
from tandem.cli.options import ADDRESS
from tandem.cli.terminal.console import errors, one_line, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.client import Access, Client, NewPatch
from tandem.corpus.readable_records import OnError, SkippedRecords
from tandem.corpus.readers.splits import EVERY_SPLIT

_TIMEOUT_SECONDS = 30.0
_SHOWN_COUNT = 10


@with_json
def set_attributes(
    table: Annotated[str, typer.Argument(help="table of ids and values: .csv, .jsonl or .parquet")],
    index: Annotated[str, "index of the items"],
    column: COLUMN = None,
    on_error: ON_ERROR = OnError.STOP,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Change attributes of items by a table of ids.

    Nothing is encoded. Attributes that the table has no value for stay, and so do a picture's
    captions, which are items of their own.
    """
    skipped = SkippedRecords(goes_on=on_error is OnError.SKIP)
    if not is_table_corpus(table):
        raise ValueError(
            f"{table} is no table; give a .csv, .jsonl or .parquet file, or table:PATH"
        )
    rows = open_corpus(table, EVERY_SPLIT, 0, None, skipped, columns_of(column))
    client = Client(address, _TIMEOUT_SECONDS, access=Access.from_environment())
    with client, LongWork() as work:
        work.show(stage := f"set in {index}", 0, rows.total, unit="items")

        def patches() -> Iterator[NewPatch]:
            for count, record in enumerate(rows):
                yield record.record_id, record.attributes
                work.show(stage, count + 1)

        changes = client.change(patches(), index_id=index)
    skipped.uncaptioned_count = 0
    for line in skipped.lines():
        errors.print(line)
    for failure in changes.failures[:_SHOWN_COUNT]:
        errors.print(
            one_line(f"{failure.item_id}: {failure.error.reason}: {failure.error.message}")
        )
    failed_count = len(changes.failures)
    answer(
        {"index_id": index, "changed_count": changes.changed_count, "failed_count": failed_count}
    )
    out.print(f"{index}: {changes.changed_count:,} items changed, {failed_count:,} not")
    if failed_count:
        raise typer.Exit(1)
