"""`tandem evaluate`: recall through the served path, retrieval alone and with reranking."""

import asyncio
import time
from typing import Annotated

import typer
from rich.table import Table

from tandem.cli.addresses import ADDRESS
from tandem.cli.console import errors, out, progress_bar
from tandem.cli.corpora import open_corpus
from tandem.cli.ingest import ingest_items
from tandem.client import AsyncClient, Client
from tandem.corpus.nouns import LANGUAGES
from tandem.evaluation.gallery import Gallery, make_gallery
from tandem.evaluation.metrics import Recall
from tandem.evaluation.served import RECALL_AT, DirectionReport, answer_ranks, report


def evaluate(
    corpus: Annotated[
        str, typer.Argument(help="scenes, emoji, or a Karpathy JSON file")
    ] = "scenes",
    split: Annotated[str, typer.Option(help="split of the corpus")] = "test",
    gallery_count: Annotated[int, typer.Option(help="pictures in the gallery")] = 1_000,
    query_count: Annotated[
        int | None, typer.Option(help="queries each way; unset asks with the whole gallery")
    ] = None,
    seed: Annotated[int, typer.Option(help="which scenes")] = 1,
    concurrency: Annotated[int, typer.Option(help="searches at once")] = 8,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Ingests a gallery of whole families into an index of its own and measures R@1, 5, 10.

    Each picture comes with one caption; families take turns through the languages.
    """
    gallery = make_gallery(open_corpus(corpus, split, seed, gallery_count), LANGUAGES)
    index_id = f"evaluation-{split.replace('_', '-')}-{seed}-{len(gallery.pairs)}"
    with Client(address) as client:
        total = 2 * len(gallery.pairs)
        if ingest_items(client, index_id, gallery.items(), total):
            errors.print("the gallery is not whole, so its recall would be of another set")
            raise typer.Exit(1)
    reports = asyncio.run(_measure(address, index_id, gallery, query_count, concurrency))
    print_reports(reports, f"{corpus} {split}, gallery of {len(gallery.pairs):,}, seed {seed}")


async def _measure(
    address: str, index_id: str, gallery: Gallery, query_count: int | None, concurrency: int
) -> dict[str, DirectionReport]:
    count = len(gallery.pairs) if query_count is None else query_count
    # Spread over the gallery, so that fewer queries are still of every language.
    step = max(1, len(gallery.pairs) // count)
    directions = {
        "text → image": list(gallery.text_queries())[::step][:count],
        "image → text": list(gallery.image_queries())[::step][:count],
    }
    reports = {}
    async with AsyncClient(address, timeout_seconds=60.0) as client:
        with progress_bar("queries") as bar:
            for name, queries in directions.items():
                task = bar.add_task(name, total=len(queries), rate=0.0)
                start_time = time.monotonic()
                done = 0

                def count_answer(task: object = task, start_time: float = start_time) -> None:
                    nonlocal done
                    done += 1
                    rate = done / (time.monotonic() - start_time)
                    bar.update(task, completed=done, rate=rate)  # type: ignore[arg-type]

                ranks = await answer_ranks(client, index_id, queries, concurrency, count_answer)
                reports[name] = report(ranks)
    return reports


def print_reports(reports: dict[str, DirectionReport], title: str) -> None:
    """Prints R@k with their 95 % intervals, a row a direction and stage."""
    table = Table(title=title, title_justify="left")
    table.add_column("direction")
    table.add_column("order by")
    for k in RECALL_AT:
        table.add_column(f"R@{k}  (95 %)", justify="right")
    for name, each in reports.items():
        table.add_row(name, "BE", *map(_cell, each.retrieved))
        table.add_row("", "BE + CE", *map(_cell, each.reranked))
    out.print(table)


def _cell(recall: Recall) -> str:
    low, high = recall.interval_percent
    return f"{recall.percent:.1f}  ({low:.1f} to {high:.1f})"
