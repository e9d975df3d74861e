"""`tandem demo`: the whole path on real input, from nothing to a picture of what reranking does."""

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.console import out
from tandem.cli.contact_sheet import SheetRow, write_contact_sheet
from tandem.cli.evaluate import evaluate
from tandem.cli.ingest import ingest_items, record_items
from tandem.cli.search import print_result
from tandem.cli.stack import LocalStack, Ports
from tandem.cli.up import print_endpoints
from tandem.client import Client
from tandem.corpus.nouns import Language
from tandem.corpus.records import Record
from tandem.corpus.scenes import scene_records
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export import export_if_stale

_INDEX = "scenes"
_SCENE_COUNT = 2_000
_QUERY_COUNT = 500  # each way
_LANGUAGES: Sequence[Language] = ("en", "de", "fr", "cs", "en")
_NAMES = {"en": "English", "de": "German", "fr": "French", "cs": "Czech"}


@dataclass(frozen=True, slots=True)
class _Query:
    query: str | bytes
    note: str
    answer_ids: frozenset[str]


def demo(
    data: Annotated[
        Path, typer.Option(help="folder of the demo's stores, logs and picture")
    ] = Path(".tandem/demo"),
    model_repository: Annotated[Path, typer.Option(help="Triton's model repository")] = Path(
        "model_repository"
    ),
    scene_count: Annotated[int, typer.Option(help="scenes to ingest")] = _SCENE_COUNT,
    query_count: Annotated[int, typer.Option(help="evaluation queries each way")] = _QUERY_COUNT,
) -> None:
    """Serves the shipped model, ingests scenes, asks in four languages, measures, draws."""
    start_time = time.monotonic()
    shutil.rmtree(data, ignore_errors=True)
    manifest = export_if_stale(default_checkpoint(), model_repository)
    out.rule(f"up: model {manifest.fingerprint[:12]}")
    with LocalStack(data.resolve(), model_repository.resolve(), Ports.free(2)) as stack:
        stack.start()
        print_endpoints(stack)
        out.rule(f"ingest {scene_count:,} held-out scenes")
        records = list(scene_records("test", 2, scene_count))
        with Client(stack.address, timeout_seconds=30.0) as client:
            ingest_items(client, _INDEX, record_items(records, True), None)
            rows = [_ask(client, query) for query in demo_queries(records)]
        sheet = data / "contact_sheet.png"
        write_contact_sheet(rows, sheet)
        out.rule(f"evaluate on {2 * query_count:,} held-out queries")
        evaluate(query_count=query_count, address=stack.address)
    out.print(f"\nBefore and after reranking: [bold]{sheet}[/]")
    out.print(f"{time.monotonic() - start_time:.0f} s, and no process left behind.")


def demo_queries(records: Sequence[Record]) -> Iterator[_Query]:
    """Yields five captions in four languages and one picture, each of the next family.

    The first families whose scenes have a place to speak of are taken as they come: nothing is
    picked for its result.
    """
    firsts = _first_of_families(record for record in records if "," in _caption(record, "de"))
    for language, record in zip(_LANGUAGES, firsts, strict=False):
        yield _Query(_caption(record, language), _NAMES[language], frozenset({record.record_id}))
    record = next(firsts)
    answer_ids = frozenset(caption.caption_id for caption in record.captions)
    yield _Query(record.image.read(), f"picture\n{record.record_id}", answer_ids)


def _ask(client: Client, query: _Query) -> SheetRow:
    result = client.search(
        query.query, index_id=_INDEX, return_n=20, retrieve_k=20, content_included=True
    )
    title = query.query if isinstance(query.query, str) else "find its texts"
    out.rule(f"{query.note.replace(chr(10), ' ')}: {title}", align="left")
    print_result(result, count=5)
    return SheetRow(query.query, query.note, query.answer_ids, result.items)


def _first_of_families(records: Iterable[Record]) -> Iterator[Record]:
    seen: set[str] = set()
    for record in records:
        if record.family not in seen:
            seen.add(record.family)
            yield record


def _caption(record: Record, language: Language) -> str:
    return next(caption.text for caption in record.captions if caption.language == language)
