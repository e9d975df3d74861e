"""`tandem search`: runs one query of any kind, or a file of queries."""

import re
from array import array
from pathlib import Path
from typing import Annotated, Final

import typer
from google.protobuf import json_format

from tandem.cli.addresses import ADDRESS
from tandem.cli.search.empty_answer import why_empty
from tandem.cli.search.found_files import FoundFiles
from tandem.cli.search.search_output import SearchOutput
from tandem.cli.terminal.console import errors
from tandem.client import (
    Access,
    Client,
    FusionMethod,
    GivenEncoding,
    HybridFusion,
    Modality,
    Query,
    QueryPart,
    Search,
    SearchOptions,
    StoredItem,
    TruncationPolicy,
)
from tandem.contract.filter_expression import FilterTextInvalid, parse_filter
from tandem.contract.filters import Filter
from tandem.contract.limits import MAX_MESSAGE_BYTES, MAX_SEARCH_COUNT
from tandem.errors import TandemError
from tandem.pictures.smaller_jpeg import sendable_picture
from tandem.v1 import content_pb2, search_service_pb2

# Not splitlines, which would also split at U+2028 and similar characters.
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def search(
    text: Annotated[list[str] | None, typer.Argument(help="text to find images for")] = None,
    image: Annotated[
        Path | None, typer.Option(help="image file to find texts for", exists=True, dir_okay=False)
    ] = None,
    item: Annotated[
        list[str] | None, typer.Option(help="id of an item in the index to search with; may repeat")
    ] = None,
    encoding: Annotated[
        Path | None,
        typer.Option(
            help="file with a tandem.v1.GivenEncoding as JSON", exists=True, dir_okay=False
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="file with one query a line, searched in batches", exists=True, dir_okay=False
        ),
    ] = None,
    weight: Annotated[
        list[float] | None,
        typer.Option(help="weight of each query part, in the order text, image, items, encoding"),
    ] = None,
    index: Annotated[str, typer.Option(help="index to search")] = "scenes",
    target: Annotated[
        Modality | None, typer.Option("--target-modality", help="what to find")
    ] = None,
    all_modalities: Annotated[
        bool, typer.Option("--all-modalities-included", help="find both modalities")
    ] = False,
    retrieve_k: Annotated[
        int | None, typer.Option(help="items that the bi-encoder retrieves")
    ] = None,
    rerank_k: Annotated[int | None, typer.Option(help="items of those to rerank")] = None,
    return_n: Annotated[int | None, typer.Option(help="items to show")] = None,
    pages: Annotated[int, typer.Option(help="pages of results to show", min=1)] = 1,
    rerank_disabled: Annotated[
        bool, typer.Option("--rerank-disabled", help="keep bi-encoder order")
    ] = False,
    require_rerank: Annotated[
        bool,
        typer.Option("--rerank-required", help="fail unless all --rerank-k items are reranked"),
    ] = False,
    adaptive_depth: Annotated[
        bool,
        typer.Option(
            "--adaptive-depth", help="stop reranking once the top result is unlikely to change"
        ),
    ] = False,
    neighbours: Annotated[
        bool,
        typer.Option(
            "--neighbours-enabled", help="reorder the first items by their neighbours (LeaPRR)"
        ),
    ] = False,
    require_neighbours: Annotated[
        bool,
        typer.Option(
            "--neighbours-required", help="fail unless that is done with the items of all shards"
        ),
    ] = False,
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="find items by words too, and fuse both lists")
    ] = False,
    keywords: Annotated[
        str | None, typer.Option(help="words to find items by, too; by default those of the query")
    ] = None,
    hybrid_fusion: Annotated[
        HybridFusion | None, typer.Option(help="how a hybrid search fuses both lists")
    ] = None,
    keyword_weight: Annotated[
        float | None, typer.Option(help="weight of what the words found, 0 to 1")
    ] = None,
    full_coverage: Annotated[
        bool,
        typer.Option("--full-coverage-required", help="fail if a shard does not answer"),
    ] = False,
    fusion: Annotated[
        FusionMethod | None, typer.Option(help="how to combine the scores of both models")
    ] = None,
    cross_encoder_weight: Annotated[
        float | None, typer.Option(help="cross-encoder weight of --fusion, 0 to 1")
    ] = None,
    min_probability: Annotated[
        float | None,
        typer.Option(help="leave out items with a lower match probability, and unscored ones"),
    ] = None,
    relevance_weight: Annotated[
        float | None, typer.Option(help="diversity: 1 is relevance only, 0 diversity only")
    ] = None,
    duplicate_similarity: Annotated[
        float | None, typer.Option(help="show only the best of items at least this similar")
    ] = None,
    truncation: Annotated[
        TruncationPolicy | None,
        typer.Option("--truncation-policy", help="what to do with a text over the model's limit"),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="show the terms of each score, and how each shard searched"),
    ] = False,
    stream: Annotated[bool, typer.Option("--stream", help="show bi-encoder order first")] = False,
    where: Annotated[
        str | None,
        typer.Option(help="filter on attributes: 'style = noto and not exists hidden'"),
    ] = None,
    consistency_token: Annotated[
        list[str] | None, typer.Option(help="token of a write that the search must see; may repeat")
    ] = None,
    attributes: Annotated[
        bool, typer.Option("--attributes", help="show the items' attributes")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="print one JSON object with every field")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(help="folder to save the found items in, one file each", file_okay=False),
    ] = None,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Find images by text, texts by image, or by an item.

    Several of them together are one query.
    """
    words = " ".join(text or []) if text else None
    texts = _texts(queries) if queries else []
    parts = _parts(words, image, item or [], encoding, weight or [])
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
        rerank_disabled=rerank_disabled,
        rerank_required=require_rerank,
        adaptive_depth=adaptive_depth,
        neighbours_enabled=neighbours,
        neighbours_required=require_neighbours,
        hybrid=hybrid,
        keywords=keywords,
        hybrid_fusion=hybrid_fusion,
        keyword_weight=keyword_weight,
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
        # Found texts are printed, so a search that may find texts requests contents.
        content_included=save is not None
        or image is not None
        or all_modalities
        or target is Modality.TEXT,
        attributes_included=attributes,
    )
    output = SearchOutput(
        index,
        as_json=json,
        attributes_shown=attributes,
        paths_shown=explain,
        files=None if save is None else FoundFiles(save),
    )
    with Client(address, access=Access.from_environment()) as client:
        if texts:
            is_whole = _search_each(client, texts, index, options, output)
        else:
            _search_one(client, parts, words, index, options, output, stream=stream, pages=pages)
            is_whole = True
    if not output.finish(is_batch=bool(texts)) or not is_whole:
        raise typer.Exit(1)


def _search_one(
    client: Client,
    parts: list[QueryPart],
    words: str | None,
    index: str,
    options: SearchOptions,
    output: SearchOutput,
    *,
    stream: bool,
    pages: int,
) -> None:
    """Searches once, and shows up to `page_count` pages, and whether there are more."""
    query = _query(parts)
    if stream:
        for result in client.search_stream(query, index_id=index, **options):
            why = why_empty(client, query, index, options, result) if result.is_final else []
            heading = "final:" if result.is_final else "as retrieved:"
            output.show(result, words, heading=heading, why_empty=why)
    else:
        result = client.search(query, index_id=index, **options)
        why = why_empty(client, query, index, options, result)
        output.show(result, words, why_empty=why)
    for _ in range(pages - 1):
        if not result.next_cursor:
            return
        result = client.search_page(
            result.next_cursor,
            index_id=index,
            content_included=options.get("content_included", False),
            attributes_included=options.get("attributes_included", False),
        )
        output.show_page(result)
    if result.next_cursor:
        output.say_more()


def _search_each(
    client: Client,
    texts: list[str],
    index: str,
    options: SearchOptions,
    output: SearchOutput,
) -> bool:
    """Searches with each text; reports refused ones, and returns whether all were answered."""
    is_whole = True
    for start in range(0, len(texts), MAX_SEARCH_COUNT):
        batch = texts[start : start + MAX_SEARCH_COUNT]
        outcomes = client.search_batch(Search(text, index_id=index, **options) for text in batch)
        for text, outcome in zip(batch, outcomes, strict=True):
            output.head(text)
            if isinstance(outcome, TandemError):
                output.show_refusal(outcome, text)
                is_whole = False
            else:
                why = why_empty(client, text, index, options, outcome)
                output.show(outcome, text, why_empty=why)
    return is_whole


def _parts(
    text: str | None,
    image: Path | None,
    item_ids: list[str],
    encoding: Path | None,
    weights: list[float],
) -> list[QueryPart]:
    """Returns the query's parts in the order of --weight."""
    sources: list[str | bytes | StoredItem | GivenEncoding] = []
    if text is not None:
        sources.append(text)
    if image is not None:
        sources.append(sendable_picture(_bounded_bytes(image, "a picture")))
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
    """Returns the weighted parts, or the only content."""
    match parts:
        case [QueryPart(str() | bytes() as content, 1.0)]:
            return content
        case _:
            return parts


def _bounded_bytes(path: Path, what: str) -> bytes:
    """Returns a file's bytes, up to the limit of a message, because a pipe may be endless."""
    with path.open("rb") as file:
        content = file.read(MAX_MESSAGE_BYTES + 1)
    if len(content) > MAX_MESSAGE_BYTES:
        raise typer.BadParameter(f"{path} has more than {MAX_MESSAGE_BYTES:,} bytes; is it {what}?")
    return content


def _given(path: Path) -> GivenEncoding:
    try:
        message = json_format.Parse(
            _bounded_bytes(path, "an encoding"), search_service_pb2.GivenEncoding()
        )
    except json_format.ParseError as error:
        raise typer.BadParameter(f"{path} is not a tandem.v1.GivenEncoding: {error}") from error
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path} is not JSON: it is not UTF-8") from None
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
    """Returns the file's non-empty lines, without a byte-order mark."""
    try:
        text = _bounded_bytes(path, "a list of queries").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"{path} is not UTF-8 ({error.reason}); save it as UTF-8"
        ) from None
    texts = [line for line in _LINE_END.split(text) if line.strip()]
    if not texts:
        raise typer.BadParameter(f"{path} has no queries; write one a line")
    return texts


def _parsed(expression: str) -> Filter:
    try:
        return parse_filter(expression)
    except FilterTextInvalid as error:
        # Unwrapped, or its mark would be below another character.
        errors.print(f"--where: {error.pointed_out()}")
        raise typer.Exit(2) from error
