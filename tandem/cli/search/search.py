"""`tandem search`: runs one query of any kind, or a file of queries."""

import inspect
import re
from array import array
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from google.protobuf import json_format

from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS, flag_of, parsed_where, with_options
from tandem.cli.search.empty_answer import why_empty
from tandem.cli.search.found_files import FoundFiles
from tandem.cli.search.replay import write_bundle
from tandem.cli.search.search_output import SearchOutput
from tandem.cli.smaller_jpeg import sendable_picture
from tandem.client import (
    Access,
    Client,
    GivenEncoding,
    Modality,
    Query,
    QueryPart,
    Search,
    SearchOptions,
    StoredItem,
)
from tandem.client.query import search_query
from tandem.client.search_options import HINTS
from tandem.contract.limits import MAX_MESSAGE_BYTES, MAX_SEARCH_COUNT
from tandem.errors import TandemError
from tandem.v1 import content_pb2, search_service_pb2

# Not splitlines, which would also split at U+2028 and similar characters.
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCall:
    """The options of the command alone; all others are the SDK's."""

    text: Annotated[list[str] | None, typer.Argument(help="text to find images for")] = None
    image: Annotated[
        Path | None, typer.Option(help="image file to find texts for", exists=True, dir_okay=False)
    ] = None
    item: Annotated[list[str] | None, "id of an item in the index to search with; may repeat"] = (
        None
    )
    encoding: Annotated[
        Path | None,
        typer.Option(
            help="file with a tandem.v1.GivenEncoding as JSON", exists=True, dir_okay=False
        ),
    ] = None
    queries: Annotated[
        Path | None,
        typer.Option(
            help="file with one query a line, searched in batches", exists=True, dir_okay=False
        ),
    ] = None
    weight: Annotated[
        list[float] | None, "weight of each query part, in the order text, image, items, encoding"
    ] = None
    index: Annotated[str, "index to search"] = "scenes"
    pages: Annotated[int, typer.Option(help="pages of results to show", min=1)] = 1
    explain: Annotated[bool, "show the terms of each score, and how each shard searched"] = False
    stream: Annotated[bool, "show bi-encoder order first"] = False
    where: Annotated[str | None, "filter on attributes: 'style = noto and not exists hidden'"] = (
        None
    )
    consistency_token: Annotated[
        list[str] | None, "token of a write that the search must see; may repeat"
    ] = None
    attributes: Annotated[bool, "show the items' attributes"] = False
    json: Annotated[bool, "print one JSON object with every field"] = False
    save: Annotated[
        Path | None,
        typer.Option(help="folder to save the found items in, one file each", file_okay=False),
    ] = None
    bundle: Annotated[
        Path | None,
        typer.Option(help="file for what tandem replay repeats, without contents", dir_okay=False),
    ] = None
    bundle_contents: Annotated[bool, "keep the query's own contents in the bundle"] = False
    address: ADDRESS = DEFAULT_ADDRESS

    def options(self, same: dict[str, Any]) -> SearchOptions:
        """Returns the SDK's options: those of the same name here, and the others."""
        finds_texts = same["target_modality"] is Modality.TEXT or same["all_modalities_included"]
        options: SearchOptions = SearchOptions(
            **same,  # type: ignore[typeddict-item]
            explained=self.explain,
            where=parsed_where(self.where) if self.where is not None else None,
            consistency_tokens=self.consistency_token or [],
            # Found texts are printed, so a search that may find texts requests contents.
            content_included=self.save is not None or self.image is not None or finds_texts,
            attributes_included=self.attributes,
        )
        return options

    def parts(self) -> list[QueryPart]:
        """Returns the query's parts in the order of --weight."""
        sources: list[str | bytes | StoredItem | GivenEncoding] = []
        if self.text:
            sources.append(" ".join(self.text))
        if self.image is not None:
            sources.append(sendable_picture(_bounded_bytes(self.image, "a picture")))
        sources += map(StoredItem, self.item or [])
        if self.encoding is not None:
            sources.append(_given(self.encoding))
        weights = self.weight or [1.0] * len(sources)
        if len(weights) != len(sources):
            raise typer.BadParameter(f"the query has {len(sources)} parts, --weight {len(weights)}")
        return [QueryPart(*each) for each in zip(sources, weights, strict=True)]


_OTHERWISE_NAMED: Final = (
    *("explained", "where", "consistency_tokens", "content_included", "attributes_included"),
)


def _same_options() -> list[inspect.Parameter]:
    """Returns the SDK's options that have the same name and type here."""
    found = []
    for name, hint in HINTS.items():
        kind, sentence = get_args(hint)
        if name in _OTHERWISE_NAMED:
            continue
        # An option that a sentence names is typed otherwise here.
        said = re.sub(r"\b[a-z]+_[a-z]+\b", lambda each: flag_of(each[0]), sentence)
        typed, default = (bool, False) if kind is bool else (get_args(kind)[0] | None, None)
        found.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[typed, said[0].lower() + said[1:]],
            )
        )
    return found


@partial(with_options, more=_same_options())
def search(call: SearchCall, **same: Any) -> None:  # noqa: ANN401
    """Find images by text, texts by image, or by an item.

    Several of them together are one query.
    """
    texts = _texts(call.queries) if call.queries else []
    parts = call.parts()
    if bool(texts) == bool(parts):
        raise typer.BadParameter(
            "give a text, --image FILE, --item ID or --encoding FILE, or else --queries FILE"
        )
    options = call.options(same)
    output = SearchOutput(
        call.index,
        as_json=call.json,
        attributes_shown=call.attributes,
        paths_shown=call.explain,
        files=None if call.save is None else FoundFiles(call.save),
    )
    is_whole = True
    with Client(call.address, access=Access.from_environment()) as client:
        if texts:
            is_whole = _search_each(client, texts, call.index, options, output)
        else:
            _search_one(client, parts, call, options, output)
    if not output.finish(is_batch=bool(texts)) or not is_whole:
        raise typer.Exit(1)


def _search_one(
    client: Client,
    parts: list[QueryPart],
    call: SearchCall,
    options: SearchOptions,
    output: SearchOutput,
) -> None:
    """Searches once, and shows the requested pages, and whether there are more."""
    index = call.index
    match parts:  # A content alone needs no weight.
        case [QueryPart(str() | bytes() as content, 1.0)]:
            query: Query = content
        case _:
            query = parts
    words = " ".join(call.text) if call.text else None
    if call.stream:
        for result in client.search_stream(query, index_id=index, **options):
            why = why_empty(client, query, index, options, result) if result.is_final else []
            heading = "final:" if result.is_final else "as retrieved:"
            output.show(result, words, heading=heading, why_empty=why)
    else:
        result = client.search(query, index_id=index, **options)
        if call.bundle is not None:
            asked = search_query(query, index_id=index, **options)
            write_bundle(call.bundle, asked, result, contents_included=call.bundle_contents)
        output.show(result, words, why_empty=why_empty(client, query, index, options, result))
    for _ in range(call.pages - 1):
        if not result.next_cursor:
            return
        result = client.search_page(
            result.next_cursor,
            index_id=index,
            content_included=options["content_included"],
            attributes_included=call.attributes,
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
