"""`tandem search`: a query of any form, or a file of them, and how items came to their places."""

from array import array
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf import json_format

from tandem.cli.addresses import ADDRESS
from tandem.cli.console import errors, out
from tandem.cli.search_table import print_result
from tandem.cli.where_expression import WhereInvalid, parse_where
from tandem.client import (
    Access,
    Client,
    FusionMethod,
    GivenEncoding,
    Modality,
    Query,
    QueryPart,
    Search,
    SearchOptions,
    SearchResult,
    StoredItem,
    TruncationPolicy,
)
from tandem.errors import TandemError
from tandem.filters import Filter
from tandem.v1 import content_pb2, search_service_pb2


def search(
    text: Annotated[str | None, typer.Argument(help="what to find pictures of")] = None,
    image: Annotated[
        Path | None, typer.Option(help="a picture to find texts for", exists=True, dir_okay=False)
    ] = None,
    item: Annotated[
        list[str] | None, typer.Option(help="id of an item of the index to search with; may repeat")
    ] = None,
    encoding: Annotated[
        Path | None,
        typer.Option(help="file of a tandem.v1.GivenEncoding as JSON", exists=True, dir_okay=False),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="file with a text a line, searched together", exists=True, dir_okay=False
        ),
    ] = None,
    weight: Annotated[
        list[float] | None,
        typer.Option(help="of each part of the query, in the order text, image, items, encoding"),
    ] = None,
    index: Annotated[str, typer.Option(help="index to search")] = "scenes",
    target: Annotated[Modality | None, typer.Option(help="what to find")] = None,
    all_modalities: Annotated[
        bool, typer.Option("--all-modalities", help="find the other modality too")
    ] = False,
    retrieve_k: Annotated[int | None, typer.Option(help="items the bi-encoder retrieves")] = None,
    rerank_k: Annotated[int | None, typer.Option(help="of these, items to rerank")] = None,
    return_n: Annotated[int | None, typer.Option(help="items to show")] = None,
    pages: Annotated[int, typer.Option(help="pages of so many items to show", min=1)] = 1,
    rerank: Annotated[bool, typer.Option(help="let the cross-encoder reorder them")] = True,
    require_rerank: Annotated[
        bool, typer.Option("--require-rerank", help="refuse an answer not reranked in full")
    ] = False,
    adaptive_depth: Annotated[
        bool, typer.Option("--adaptive-depth", help="rerank only as deep as it is worth")
    ] = False,
    full_coverage: Annotated[
        bool, typer.Option("--full-coverage", help="refuse an answer that lacks some shard's items")
    ] = False,
    fusion: Annotated[
        FusionMethod | None, typer.Option(help="how both models' scores make the order")
    ] = None,
    cross_encoder_weight: Annotated[
        float | None, typer.Option(help="0 to 1, of the two sums")
    ] = None,
    min_probability: Annotated[
        float | None, typer.Option(help="leave out what is less probable, or was not scored")
    ] = None,
    relevance_weight: Annotated[
        float | None, typer.Option(help="variety: 1 is closeness alone, 0 variety alone")
    ] = None,
    duplicate_similarity: Annotated[
        float | None, typer.Option(help="of items at least this similar show only the best")
    ] = None,
    truncation: Annotated[
        TruncationPolicy | None, typer.Option(help="for a text over the model's limit")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="show what each score is made of, and how each shard found its items"
        ),
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="show the bi-encoder's order first")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(help="what items' attributes must be: 'style = noto and not exists hidden'"),
    ] = None,
    consistency_token: Annotated[
        list[str] | None, typer.Option(help="of a write that must be seen; may repeat")
    ] = None,
    attributes: Annotated[bool, typer.Option(help="show the items' attributes")] = False,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Finds pictures by a text, texts by a picture, either by an item, or by several together."""
    texts = _texts(queries) if queries else None
    parts = _parts(text, image, item or [], encoding, weight or [])
    if bool(texts) == bool(parts):
        raise typer.BadParameter(
            "give a text, --image FILE, --item ID or --encoding FILE, or else --queries FILE"
        )
    options = SearchOptions(
        target_modality=target,
        all_modalities_included=all_modalities,
        retrieve_k=retrieve_k,
        rerank_k=rerank_k,
        return_n=return_n,
        rerank_disabled=not rerank,
        rerank_required=require_rerank,
        adaptive_depth=adaptive_depth,
        full_coverage_required=full_coverage,
        fusion=fusion,
        cross_encoder_weight=cross_encoder_weight,
        min_probability=min_probability,
        relevance_weight=relevance_weight,
        duplicate_similarity=duplicate_similarity,
        truncation_policy=truncation,
        explained=explain,
        where=_parsed(where) if where is not None else None,
        consistency_tokens=consistency_token or [],
        # Texts are shown with their words, so whatever may find texts asks for contents.
        content_included=attributes
        or image is not None
        or all_modalities
        or target is Modality.TEXT,
    )
    with Client(address, access=Access.from_environment()) as client:
        if texts:
            _search_each(
                client, texts, index, options, attributes_shown=attributes, paths_shown=explain
            )
            return
        if stream:
            for result in client.search_stream(_query(parts), index_id=index, **options):
                out.print("final:" if result.is_final else "as retrieved:")
                print_result(result, attributes_shown=attributes, paths_shown=explain)
        else:
            result = client.search(_query(parts), index_id=index, **options)
            print_result(result, attributes_shown=attributes, paths_shown=explain)
        _show_pages(client, result, index, pages - 1, options, attributes_shown=attributes)


def _show_pages(
    client: Client,
    result: SearchResult,
    index: str,
    count: int,
    options: SearchOptions,
    *,
    attributes_shown: bool,
) -> None:
    """Shows up to so many pages more, and says where there are others."""
    for _ in range(count):
        if not result.next_cursor:
            return
        result = client.search_page(
            result.next_cursor,
            index_id=index,
            content_included=options.get("content_included", False),
        )
        print_result(result, attributes_shown=attributes_shown)
    if result.next_cursor:
        out.print("there is more: --pages")


def _search_each(
    client: Client,
    texts: list[str],
    index: str,
    options: SearchOptions,
    *,
    attributes_shown: bool,
    paths_shown: bool,
) -> None:
    """Searches with each text; one that is refused is told and makes the exit status 1."""
    outcomes = client.search_batch(Search(text, index_id=index, **options) for text in texts)
    for text, outcome in zip(texts, outcomes, strict=True):
        out.rule(text, align="left")
        if isinstance(outcome, TandemError):
            errors.print(f"{outcome.reason} {outcome.message}")
        else:
            print_result(outcome, attributes_shown=attributes_shown, paths_shown=paths_shown)
    if any(isinstance(outcome, TandemError) for outcome in outcomes):
        raise typer.Exit(1)


def _parts(
    text: str | None,
    image: Path | None,
    item_ids: list[str],
    encoding: Path | None,
    weights: list[float],
) -> list[QueryPart]:
    """Returns what the query is made of, in the order in which weights are given."""
    sources: list[str | bytes | StoredItem | GivenEncoding] = []
    if text is not None:
        sources.append(text)
    if image is not None:
        sources.append(image.read_bytes())
    sources += map(StoredItem, item_ids)
    if encoding is not None:
        sources.append(_given(encoding))
    if weights and len(weights) != len(sources):
        raise typer.BadParameter(f"the query has {len(sources)} parts, --weight {len(weights)}")
    return [
        QueryPart(source, weight)
        for source, weight in zip(sources, weights or [1.0] * len(sources), strict=True)
    ]


def _query(parts: list[QueryPart]) -> Query:
    """Returns the parts, or the content that is the only one."""
    match parts:
        case [QueryPart(str() | bytes() as content, 1.0)]:
            return content
        case _:
            return parts


def _given(path: Path) -> GivenEncoding:
    try:
        message = json_format.Parse(path.read_bytes(), search_service_pb2.GivenEncoding())
    except json_format.ParseError as error:
        raise typer.BadParameter(f"{path} is no tandem.v1.GivenEncoding: {error}") from error
    values = array("f")
    values.frombytes(message.embedding.values[: len(message.embedding.values) // 4 * 4])
    is_text = message.modality == content_pb2.MODALITY_TEXT
    return GivenEncoding(
        values,
        message.model_fingerprint,
        Modality.TEXT if is_text else Modality.IMAGE,
        message.tokens if message.HasField("tokens") else None,
    )


def _texts(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _parsed(expression: str) -> Filter:
    try:
        return parse_where(expression)
    except WhereInvalid as error:
        # As it is: wrapped or boxed, its mark would stand below another character.
        errors.print(f"--where: {error}")
        raise typer.Exit(2) from error
