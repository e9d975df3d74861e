"""`tandem evaluate`: recall through the served path, or of a checkpoint without a server."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import TaskID
from rich.table import Table

from tandem.cli.addresses import ADDRESS
from tandem.cli.console import errors, out, progress_bar
from tandem.cli.corpora import open_corpus
from tandem.cli.ingest import ingest_items
from tandem.client import AsyncClient, Client
from tandem.content import Modality
from tandem.corpus.nouns import LANGUAGES
from tandem.evaluation.gallery import Gallery, make_gallery
from tandem.evaluation.metrics import Recall, recall_at
from tandem.evaluation.ranking import Order, first_answer_ranks
from tandem.evaluation.served import POOL_K, RECALL_AT, DirectionReport, answer_ranks, report
from tandem.model_io.precision import Precision

DIRECTIONS = {"text→image": Modality.IMAGE, "image→text": Modality.TEXT}


@dataclass(frozen=True, slots=True)
class Row:
    """One order of one direction."""

    direction: str
    order_by: str
    recalls: tuple[Recall, ...]


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
    checkpoint: Annotated[
        Path | None, typer.Option(help="measure this one here, without a server")
    ] = None,
    retriever: Annotated[
        Path | None, typer.Option(help="with --checkpoint: another one, whose BE retrieves for it")
    ] = None,
    k: Annotated[
        list[int] | None, typer.Option(min=1, help="with --checkpoint: pool sizes to rerank")
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="with --checkpoint: to compute in; unset is fp32")
    ] = None,
    regions: Annotated[
        Path | None, typer.Option(help="with --checkpoint: a file of regions to read for pixels")
    ] = None,
) -> None:
    """Ingests a gallery of whole families into an index of its own and measures R@1, 5, 10.

    Each picture comes with one caption; families take turns through the languages. With
    --checkpoint nothing is ingested, and all of the gallery asks.
    """
    if checkpoint is None and (k or retriever or precision or regions):
        raise typer.BadParameter(
            "--k, --retriever, --precision and --regions need --checkpoint; a server has its own"
        )
    if checkpoint is not None and query_count is not None:
        raise typer.BadParameter("--checkpoint asks with the whole gallery: take --gallery-count")
    gallery = make_gallery(open_corpus(corpus, split, seed, gallery_count), LANGUAGES)
    title = f"{corpus} {split}, gallery of {len(gallery.pairs):,}, seed {seed}"
    if checkpoint is not None:
        folders = [checkpoint, retriever] if retriever else [checkpoint]
        chosen = precision or Precision.FP32
        print_rows(
            _offline_rows(folders, chosen, gallery, k or [POOL_K], regions), f"{title}, {chosen}"
        )
        return
    index_id = f"evaluation-{split.replace('_', '-')}-{seed}-{len(gallery.pairs)}"
    with Client(address) as client:
        total = 2 * len(gallery.pairs)
        if ingest_items(client, index_id, gallery.items(), total):
            errors.print("the gallery is not whole, so its recall would be of another set")
            raise typer.Exit(1)
    reports = asyncio.run(_measure(address, index_id, gallery, query_count, concurrency))
    print_rows(_served_rows(reports), title)


async def _measure(
    address: str, index_id: str, gallery: Gallery, query_count: int | None, concurrency: int
) -> dict[str, DirectionReport]:
    count = len(gallery.pairs) if query_count is None else query_count
    # Spread over the gallery, so that fewer queries are still of every language.
    step = max(1, len(gallery.pairs) // count)
    queries_for = {Modality.IMAGE: gallery.text_queries, Modality.TEXT: gallery.image_queries}
    reports = {}
    async with AsyncClient(address, timeout_seconds=60.0) as client:
        with progress_bar("queries") as bar:
            for name, target in DIRECTIONS.items():
                queries = list(queries_for[target]())[::step][:count]
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


def _served_rows(reports: dict[str, DirectionReport]) -> Iterator[Row]:
    for name, each in reports.items():
        yield Row(name, "BE", each.retrieved)
        yield Row(name, f"BE + CE {POOL_K}", each.reranked)


def _offline_rows(
    folders: Sequence[Path],
    precision: Precision,
    gallery: Gallery,
    pool_sizes: Sequence[int],
    regions: Path | None,
) -> Iterator[Row]:
    """`folders` are one checkpoint, or two of which the second retrieves for the first."""
    # Imported here: torch takes seconds, and nothing of the served path needs it.
    from tandem.evaluation.offline import OfflineGallery
    from tandem.modeling.checkpoint import load_checkpoint
    from tandem.modeling.lowered import lowered
    from tandem.modeling.region_tokens import RegionFile

    images = RegionFile(regions) if regions else None
    count = len(gallery.pairs)
    answers = [{number} for number in range(count)]

    def recalls(order: Order) -> tuple[Recall, ...]:
        ranks = first_answer_ranks(order, answers)
        return tuple(recall_at(ranks, k) for k in RECALL_AT)

    with progress_bar("queries") as bar:
        offline, *rest = (
            OfflineGallery(
                replace(loaded, model=lowered(loaded.model, precision)),
                gallery,
                images,
            )
            for loaded in map(load_checkpoint, folders)
        )
        retriever = rest[0] if rest else None
        for name, target in DIRECTIONS.items():
            task = bar.add_task(name, total=count, rate=0.0)
            start_time = time.monotonic()

            def show(done: int, task: TaskID = task, start_time: float = start_time) -> None:
                bar.update(task, completed=done, rate=done / (time.monotonic() - start_time))

            pools = offline.score(target, max(pool_sizes), show, retriever)
            yield Row(name, "BE", recalls(pools.retrieved))
            for k in sorted(pool_sizes):
                yield Row(name, f"BE + CE {k}", recalls(pools.reranked(k)))


def print_rows(rows: Iterable[Row], title: str) -> None:
    """Prints R@k with their 95 % intervals, a row a direction and order."""
    # Fits 80 columns, whatever the numbers.
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("direction")
    table.add_column("order by")
    for k in RECALL_AT:
        table.add_column(f"R@{k}   95 % CI", justify="right")
    last = ""
    for row in rows:
        table.add_row(
            "" if row.direction == last else row.direction, row.order_by, *map(_cell, row.recalls)
        )
        last = row.direction
    out.print(table)


def _cell(recall: Recall) -> str:
    low, high = recall.interval_percent
    return f"{recall.percent:.1f}  {low:.1f}–{high:.1f}"
