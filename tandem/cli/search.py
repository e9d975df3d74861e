"""`tandem search`: one query, and how each item came to its place."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tandem.attributes import AttributeValue
from tandem.cli.addresses import ADDRESS
from tandem.cli.console import errors, out
from tandem.cli.where_expression import WhereInvalid, parse_where
from tandem.client import Client, Coverage, FoundItem, SearchResult
from tandem.content import TextContent
from tandem.filters import Filter


def search(
    text: Annotated[str | None, typer.Argument(help="what to find pictures of")] = None,
    image: Annotated[
        Path | None,
        typer.Option(help="a picture to find texts for", exists=True, dir_okay=False),
    ] = None,
    index: Annotated[str, typer.Option(help="index to search")] = "scenes",
    retrieve_k: Annotated[int | None, typer.Option(help="items the bi-encoder retrieves")] = None,
    rerank_k: Annotated[int | None, typer.Option(help="of these, items to rerank")] = None,
    return_n: Annotated[int | None, typer.Option(help="items to show")] = None,
    rerank: Annotated[bool, typer.Option(help="let the cross-encoder reorder them")] = True,
    full_coverage: Annotated[
        bool, typer.Option("--full-coverage", help="refuse an answer that lacks some shard's items")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(help="what items' attributes must be: 'style = noto and not exists hidden'"),
    ] = None,
    attributes: Annotated[bool, typer.Option(help="show the items' attributes")] = False,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Finds pictures by a text, or texts by a picture."""
    if (text is None) == (image is None):
        raise typer.BadParameter("give a text or --image FILE, one of the two")
    wanted = _parsed(where) if where is not None else None
    query: str | bytes = image.read_bytes() if image else text or ""
    with Client(address) as client:
        result = client.search(
            query,
            index_id=index,
            retrieve_k=retrieve_k,
            rerank_k=rerank_k,
            return_n=return_n,
            rerank_disabled=not rerank,
            full_coverage_required=full_coverage,
            content_included=attributes or image is not None,
            where=wanted,
        )
    print_result(result, attributes_shown=attributes)


def print_result(
    result: SearchResult, count: int | None = None, *, attributes_shown: bool = False
) -> None:
    """Prints the items, or the first `count`, as a table and the stages' times as a line."""
    table = Table(box=None, pad_edge=False)
    for heading in ("rank", "was", "similarity", "CE logit", "probability"):
        table.add_column(heading, justify="right")
    table.add_column("item")
    if attributes_shown:
        table.add_column("attributes")
    for item in result.items[:count]:
        table.add_row(
            str(item.final_rank),
            str(item.retrieve_rank),
            f"{item.similarity:.3f}",
            "" if item.match_logit is None else f"{item.match_logit:+.2f}",
            "" if item.match_probability is None else f"{item.match_probability:.3f}",
            Text(_named(item)),
            *([Text(_attributes(item))] if attributes_shown else []),
        )
    out.print(table)
    if not result.coverage.is_full:
        errors.print(coverage_warning(result.coverage), markup=False, highlight=False)
    seconds = result.seconds
    out.print(
        f"encode {seconds.encode * 1e3:.1f} ms, retrieve {seconds.retrieve * 1e3:.1f} ms, "
        f"rerank {seconds.rerank * 1e3:.1f} ms, fetch {seconds.fetch * 1e3:.1f} ms, "
        f"total {seconds.total * 1e3:.1f} ms; model {result.model_fingerprint[:12]}",
        highlight=False,
    )


def coverage_warning(coverage: Coverage) -> str:
    """Returns a line that says how much of the index an answer lacks, and why."""
    missing = ", ".join(
        f"shard {number}: {reason}" for number, reason in sorted(coverage.missing_shards.items())
    )
    items = f"{coverage.covered_item_count:,} items"
    if coverage.item_count is not None:
        items = f"{coverage.covered_item_count:,} of {coverage.item_count:,} items"
    shards = f"{coverage.answered_shard_count} of {coverage.shard_count} shards"
    return f"warning: partial answer: {shards} ({items}) were searched; {missing}"


def _parsed(expression: str) -> Filter:
    try:
        return parse_where(expression)
    except WhereInvalid as error:
        # As it is: wrapped or boxed, its mark would stand below another character.
        errors.print(f"--where: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error


def _attributes(item: FoundItem) -> str:
    return ", ".join(f"{name}={_written(value)}" for name, value in item.attributes.items())


def _written(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "|".join(value) if isinstance(value, tuple) else str(value)


def _named(item: FoundItem) -> str:
    if isinstance(item.content, TextContent):
        return f"{item.item_id}: {item.content.text}"
    return item.item_id
