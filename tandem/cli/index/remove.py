"""`tandem remove` and `tandem index drop`: delete items, or a whole index."""

from itertools import islice
from typing import Annotated

import typer

from tandem.cli.index.generations import drop_generation
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
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.client import Client
from tandem.contract.identifiers import check_index_id
from tandem.contract.limits import MAX_ITEM_ID_COUNT


@with_json
def remove(
    items: Annotated[
        list[str] | None, typer.Argument(help="item ids, as tandem search prints them")
    ] = None,
    index: Annotated[str, "index to remove them from"] = "scenes",
    prefix: PREFIX = "",
    glob: GLOB = "",
    where: WHERE = "",
    dry_run: DRY_RUN = False,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Delete items by id or by selection, permanently.

    A selection is what fits all of --prefix, --glob and --where.

    An image's captions are separate items, and stay unless you name them too.
    """
    item_ids = list(dict.fromkeys(items or ()))
    selection = selection_of(prefix, glob, where)
    if bool(item_ids) == bool(selection) or (item_ids and dry_run):
        raise typer.BadParameter("name ids, or --prefix, --glob and --where, which take --dry-run")
    rest, removed_count = iter(item_ids), 0
    with opened(address) as client:
        while batch := list(islice(rest, MAX_ITEM_ID_COUNT)):
            removed_count += client.remove(batch, index_id=index).removed_count
        if selection:
            removal = client.remove_selected(index_id=index, dry_run=dry_run, **selection)
            removed_count, item_ids = removal.removed_count, list(removal.item_ids)
    answer({"index_id": index, "removed_count": removed_count, "id_count": len(item_ids)})
    tell_count(index, removed_count, "removed", item_ids, dry_run=dry_run)
    if not selection and (missing_count := len(item_ids) - removed_count):
        pattern = "; a pattern is --glob" if any("*" in each for each in item_ids) else ""
        errors.print(
            f"warning: {missing_count:,} of the {len(item_ids):,} ids were not in index "
            f"{index}{pattern}"
        )


@with_json
def drop(
    index_id: Annotated[str, typer.Argument(help="index id, for example scenes")],
    yes: Annotated[bool, "do not ask"] = False,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Delete an index with all its items, permanently.

    NAME@2 deletes a generation that does not serve, NAME@1 the first.
    """
    check_index_id(index_id)
    if not yes:
        typer.confirm(f"Remove index {index_id} with all its items?", abort=True)
    if "@" in index_id:
        drop_generation(index_id, address)
        answer({"index_id": index_id})
        out.print(f"{index_id}: gone")
        return
    with opened(address) as client:
        removed_count = drop_index(client, index_id)
    answer({"index_id": index_id, "removed_count": removed_count})
    out.print(f"{index_id}: gone, with {removed_count:,} items")


def drop_index(client: Client, index_id: str) -> int:
    """Deletes an index and returns how many items it had.

    Raises a TandemError if a part of it may be left; repeat the call then.
    """
    removed_count = 0
    with LongWork(often_short=True) as work:
        work.show(f"remove {index_id}", 0, unit="items")
        while True:
            removal = client.remove_index(index_id=index_id)
            removed_count += removal.removed_count
            work.show(f"remove {index_id}", removed_count)
            if removal.is_complete:
                return removed_count
