"""`tandem set`: changes attributes of stored items."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from tandem.cli.corpora.corpora import COLUMN, ON_ERROR, columns_of, is_table_corpus, open_corpus
from tandem.cli.index.items import (
    DRY_RUN,
    GLOB,
    PREFIX,
    WHERE,
    opened,
    selection_of,
    tell_count,
)
from tandem.cli.options import ADDRESS
from tandem.cli.terminal.console import errors, one_line
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.client import Changes, Client, ItemPatch, NewPatch
from tandem.corpus.readable_records import OnError, SkippedRecords
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.splits import EVERY_SPLIT
from tandem.corpus.readers.table import TABLES
from tandem.corpus.readers.text_tables import cell_value

_SHOWN_COUNT = 10


@with_json
def set_attributes(
    values: Annotated[
        list[str] | None,
        typer.Argument(help="price=19.9 stock=true, or a table: .csv, .jsonl or .parquet"),
    ] = None,
    index: Annotated[str, "index of the items"] = "scenes",
    item: Annotated[list[str] | None, "an item's id; repeat it for more"] = None,
    prefix: PREFIX = "",
    glob: GLOB = "",
    where: WHERE = "",
    unset: Annotated[list[str] | None, "an attribute to remove; repeat it for more"] = None,
    dry_run: DRY_RUN = False,
    column: COLUMN = None,
    on_error: ON_ERROR = OnError.STOP,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Change attributes of items: by id, selection or table.

    Nothing is encoded. Attributes that are not named, or that the table has no value for, stay, and
    so do a picture's captions, which are items of their own. A value is a number, true, false or a
    text, as 01067 and "5" are; a name that is given twice gets a list of texts.
    """
    selection = selection_of(prefix, glob, where)
    is_table = len(values or ()) == 1 and is_table_corpus((values or [""])[0])
    attributes = {} if is_table else _attributes(values or (), unset or ())
    if [bool(item), bool(selection), is_table].count(True) != 1 or not (attributes or is_table):
        raise typer.BadParameter(
            "give price=19.9 with --item, or with --prefix, --glob and --where; or a table"
        )
    if dry_run and not selection:
        raise typer.BadParameter("--dry-run is for --prefix, --glob and --where")
    with opened(address) as client:
        if is_table:
            skipped = SkippedRecords(goes_on=on_error is OnError.SKIP)
            rows = open_corpus((values or [])[0], EVERY_SPLIT, 0, None, skipped, columns_of(column))
            changes = _changed_by_table(client, rows, index)
            skipped.uncaptioned_count = 0
            for line in skipped.lines():
                errors.print(line)
        elif item:
            changes = client.change([ItemPatch(each, attributes) for each in item], index_id=index)
        else:
            changes = client.change_selected(
                attributes, index_id=index, dry_run=dry_run, **selection
            )
    for failure in changes.failures[:_SHOWN_COUNT]:
        errors.print(
            one_line(f"{failure.item_id}: {failure.error.reason}: {failure.error.message}")
        )
    failed_count = len(changes.failures)
    answer(
        {"index_id": index, "changed_count": changes.changed_count, "failed_count": failed_count}
    )
    verb = f"changed, {failed_count:,} not" if failed_count else "changed"
    tell_count(index, changes.changed_count, verb, changes.item_ids, dry_run=dry_run)
    if failed_count:
        raise typer.Exit(1)


def _changed_by_table(client: Client, rows: RecordStream, index: str) -> Changes:
    with LongWork() as work:
        work.show(stage := f"set in {index}", 0, rows.total, unit="items")

        def patches() -> Iterator[NewPatch]:
            for count, record in enumerate(rows):
                yield record.record_id, record.attributes
                work.show(stage, count + 1)

        return client.change(patches(), index_id=index)


def _attributes(values: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(unset)
    for each in values:
        name, separator, text = each.partition("=")
        if not separator:
            is_file = each.lower().endswith(TABLES)
            missing = "there is no such file, or write table:FILE"
            why = missing if is_file else "neither like price=19.9 nor a table"
            raise typer.BadParameter(f"{each!r}: {why}")
        old = found.get(name)
        if old is None:
            is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
            found[name] = text[1:-1] if is_quoted else cell_value(text)
        else:
            found[name] = [*(old if isinstance(old, list) else [str(old)]), text]
    return found
