"""`tandem demo`: runs the whole system on its demo corpus, and draws what reranking changes."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.evaluate.evaluate import evaluate
from tandem.cli.ingest.item_ingest import ingest_items
from tandem.cli.options import DEFAULT_REPOSITORY, REPOSITORY
from tandem.cli.search.search_table import print_result
from tandem.cli.serve.contact_sheet import SheetRow, write_contact_sheet
from tandem.cli.serve.served_model import exported
from tandem.cli.serve.service_settings import given_settings
from tandem.cli.serve.up import print_endpoints
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.stop_signals import StopSignals
from tandem.client import Access, Client
from tandem.corpus.records import Caption, Record
from tandem.corpus.scenes.nouns import LANGUAGES, Language
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.gallery import Gallery, make_gallery
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.stack.data_folder import DataFolder
from tandem.stack.stack import LocalStack, Ports
from tandem.stack.start_checks import check_machine

_INDEX = "scenes"
_SCENE_COUNT = 2_000
_SEED = 2
_QUERY_COUNT = 500  # In each direction.
_LANGUAGES: Sequence[Language] = ("en", "de", "fr", "cs", "en")
_NAMES = {"en": "English", "de": "German", "fr": "French", "cs": "Czech"}
# Queries tried for each row of the picture, at most and by the scenes.
_MAX_TRIED_COUNT = 12
_SCENES_A_QUERY = 100


def demo(
    data: Annotated[Path, "folder for the demo's stores, logs and picture"] = Path(".tandem/demo"),
    repository: REPOSITORY = DEFAULT_REPOSITORY,
    scene_count: Annotated[
        int, typer.Option("--count", help="scenes to ingest, a multiple of 4", min=1)
    ] = _SCENE_COUNT,
    query_count: Annotated[
        int, typer.Option(help="evaluation queries in each direction", min=1)
    ] = _QUERY_COUNT,
) -> None:
    """Show the shipped model on scenes, in one run.

    Serves it, ingests scenes, searches in four languages, measures, and draws.
    """
    start_time = time.monotonic()
    # Another seed than the evaluation's: these are for looking at, those for measuring.
    records = scene_records("test", _SEED, scene_count)
    # Whatever ends it ends the stack first; and it empties only a folder of its own.
    with StopSignals() as stopping, DataFolder(data.resolve()) as folder, stopping.raising():
        check_machine(default_checkpoint())
        given = given_settings(os.environ)
        for note in given.notes:
            errors.print(note)
        folder.clear()
        manifest = exported(default_checkpoint(), repository)
        out.rule(f"up: model {manifest.fingerprint[:12]}")
        with LocalStack(
            folder.path, repository.resolve(), Ports.free(2), settings=given.variables
        ) as stack:
            stack.start()
            print_endpoints(stack.endpoints())
            out.rule(f"ingest {scene_count:,} held-out scenes")
            gallery = make_gallery(records, LANGUAGES)
            access = Access.from_environment()
            with Client(stack.address, timeout_seconds=30.0, access=access) as client:
                ingest_items(client, _INDEX, demo_items(gallery), 2 * scene_count)
                rows = [_ask(client, queries) for queries in demo_queries(gallery)]
            sheet = data / "contact_sheet.png"
            write_contact_sheet(rows, sheet)
            out.rule(f"evaluate on {2 * query_count:,} held-out queries")
            evaluate(query_count=query_count, address=stack.address)
    out.print(f"\nBefore and after reranking, where it changed the first item: {sheet}")
    out.print(f"{time.monotonic() - start_time:.0f} s, and no process left behind.")


def demo_items(gallery: Gallery) -> Iterator[tuple[str, str | bytes]]:
    """Yields the images and captions under readable names."""
    for record in gallery.records:
        yield record.record_id, record.image.read()
    for _, caption in gallery.pairs:
        yield caption.caption_id, caption.text


def demo_queries(gallery: Gallery) -> Iterator[Sequence[SheetRow]]:
    """Yields the queries of each row: captions in four languages and images, a family each.

    It takes the first families of each language whose sentence names a position.
    """
    seen: set[str] = set()
    for language in _LANGUAGES:
        pairs = _next_pairs(gallery, language, seen)
        yield [
            SheetRow(caption.text, _NAMES[language], record.record_id) for record, caption in pairs
        ]
    pairs = _next_pairs(gallery, "en", seen)
    yield [
        SheetRow(record.image.read(), "a picture", caption.caption_id) for record, caption in pairs
    ]


def _next_pairs(
    gallery: Gallery, language: Language, seen: set[str]
) -> Sequence[tuple[Record, Caption]]:
    """Returns the first pairs of families that are not `seen`, and adds the families to it."""
    found: list[tuple[Record, Caption]] = []
    count = max(1, min(_MAX_TRIED_COUNT, len(gallery.records) // _SCENES_A_QUERY))
    for record, caption in gallery.pairs:
        tells_a_place = any("," in each.text for each in record.captions)
        if caption.language == language and tells_a_place and record.family not in seen:
            seen.add(record.family)
            found.append((record, caption))
            if len(found) == count:
                break
    if not found:
        raise ValueError(f"too few scenes for the demo's queries in {_NAMES[language]}; take more")
    return found


def _ask(client: Client, queries: Sequence[SheetRow]) -> SheetRow:
    """Searches until reranking changes the first item, to the better or worse; prints that one."""
    for query in queries:
        result = client.search(
            query.query, index_id=_INDEX, return_n=20, retrieve_k=20, content_included=True
        )
        if result.items[0].retrieve_rank > 1:
            break
    title = query.query if isinstance(query.query, str) else "find its texts"
    out.rule(
        f"{query.note}, query {queries.index(query) + 1} of {len(queries)}: {title}", align="left"
    )
    print_result(result, count=5)
    return replace(query, items=result.items)
