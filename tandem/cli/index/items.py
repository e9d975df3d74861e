"""`tandem index items`: lists items without contents, of selections as others take them too."""

from collections.abc import Sequence
from typing import Annotated

import typer

from tandem.cli.options import ADDRESS, parsed_where
from tandem.cli.terminal.console import one_line, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.client import Access, Client
from tandem.client.changes import Selected

PREFIX = Annotated[str, "items whose ids begin so"]
GLOB = Annotated[str, "items whose ids match this pattern: * matches any characters, ? one"]
WHERE = Annotated[str, "items that match this filter: 'style = noto and not exists hidden'"]
DRY_RUN = Annotated[bool, "change nothing, and say what would be"]

_TIMEOUT_SECONDS = 30.0
_SHOWN_COUNT = 5


def selection_of(prefix: str, glob: str, where: str) -> Selected:
    """Returns what is selected; empty for nothing."""
    found = Selected(id_prefix=prefix, id_glob=glob, where=parsed_where(where) if where else None)
    return found if prefix or glob or where else Selected()


def opened(address: str) -> Client:
    """Returns a client for writes, which take longer than searches."""
    return Client(address, _TIMEOUT_SECONDS, access=Access.from_environment())


@with_json
def items(
    index_id: Annotated[str, typer.Argument(help="index id, for example scenes")],
    prefix: PREFIX = "",
    glob: GLOB = "",
    where: WHERE = "",
    attributes: Annotated[bool, "show attributes too"] = False,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """List the ids of an index's items.

    In byte order, one a line.
    """
    with opened(address) as client:
        found = client.list_items(
            index_id=index_id,
            attributes_included=attributes,
            **selection_of(prefix, glob, where),
        )
        listed = []
        for each in found:
            shown = " ".join(f"{name}={value}" for name, value in sorted(each.attributes.items()))
            out.print(one_line(f"{each.item_id}  {shown}" if shown else each.item_id))
            listed.append({"item_id": each.item_id, "attributes": dict(each.attributes)})
    answer({"index_id": index_id, "items": listed})


def tell_count(
    index_id: str, count: int, verb: str, item_ids: Sequence[str], *, dry_run: bool
) -> None:
    """Prints how many items were changed or removed, or would be, and which first."""
    out.print(f"{index_id}: {count:,} items {'would be ' if dry_run else ''}{verb}")
    if dry_run and item_ids:
        rest = " …" if count > _SHOWN_COUNT else ""
        out.print(f"  {', '.join(map(one_line, item_ids[:_SHOWN_COUNT]))}{rest}")
