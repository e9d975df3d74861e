"""`tandem evaluate`: recall through the served path, or of a checkpoint without a server."""

import asyncio
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from tandem import __version__
from tandem.cli.addresses import ADDRESS
from tandem.cli.console import errors, out, progress_bar
from tandem.cli.corpora import CORPUS_HELP, open_corpus
from tandem.cli.ingest import ingest_items
from tandem.client import AsyncClient, Client
from tandem.corpus.records import Record
from tandem.evaluation.gallery import DIRECTIONS, Gallery, folds, languages_of, make_gallery
from tandem.evaluation.metrics import RECALL_AT
from tandem.evaluation.report import Report, joined
from tandem.evaluation.report_markdown import recall_cell, report_markdown
from tandem.evaluation.served import POOL_K, served_report
from tandem.model_io.precision import Precision

# Called with the direction and how many of its queries are done.
OnProgress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class _Offline:
    """What --checkpoint and its companions say."""

    checkpoint: Path
    retriever: Path | None
    precision: Precision
    fusion_pool_size: int | None


def evaluate(
    corpus: Annotated[str, typer.Argument(help=CORPUS_HELP)] = "scenes",
    split: Annotated[str, typer.Option(help="split of the corpus")] = "test",
    gallery_count: Annotated[int, typer.Option(help="pictures in the gallery", min=1)] = 1_000,
    captions: Annotated[int, typer.Option(help="captions a picture", min=1)] = 1,
    language: Annotated[
        str | None, typer.Option(help="ask in this one alone; unset takes turns through all")
    ] = None,
    fold_count: Annotated[
        int, typer.Option("--folds", help="galleries to divide the pictures into", min=1)
    ] = 1,
    distractors: Annotated[
        str | None, typer.Option(help="CORPUS:SPLIT:COUNT to search among as well, never asking")
    ] = None,
    query_count: Annotated[
        int | None, typer.Option(help="queries each way; unset asks with the whole gallery", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="which scenes")] = 1,
    k: Annotated[list[int] | None, typer.Option(min=0, help="pool sizes to rerank")] = None,
    concurrency: Annotated[int, typer.Option(help="searches at once")] = 8,
    address: ADDRESS = "127.0.0.1:7400",
    checkpoint: Annotated[
        Path | None, typer.Option(help="measure this one here, without a server")
    ] = None,
    retriever: Annotated[
        Path | None, typer.Option(help="with --checkpoint: another one, whose BE retrieves for it")
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="with --checkpoint: to compute in; unset is fp32")
    ] = None,
    fusion: Annotated[
        int | None,
        typer.Option(min=1, help="with --checkpoint: pool size over which BE and CE are fused"),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="folder for report.json, report.md and a plot")
    ] = None,
) -> None:
    """Measures R@1, 5 and 10 both ways in a gallery of whole families.

    Each picture comes with one caption; families take turns through the languages. Without
    --checkpoint the gallery is ingested into an index of its own and asked through the services.
    """
    if checkpoint is None and (retriever or precision or fusion):
        raise typer.BadParameter(
            "--retriever, --precision and --fusion need --checkpoint; a server has its own"
        )
    if checkpoint is not None and query_count is not None:
        raise typer.BadParameter("--checkpoint asks with the whole gallery: take --gallery-count")
    pool_sizes = sorted(set(k or [POOL_K]))
    if checkpoint is not None and pool_sizes[0] == 0:
        raise typer.BadParameter("--checkpoint shows BE alone anyway: --k is 1 or more")
    galleries = list(
        _galleries(
            list(open_corpus(corpus, split, seed, gallery_count)),
            language,
            captions,
            fold_count,
            _distractors(distractors, seed),
        )
    )
    about = {
        "title": _title(corpus, split, seed, galleries),
        "corpus": corpus,
        "split": split,
        "seed": seed,
        "galleries": f"{len(galleries)} of {galleries[0].asking_count:,} pictures, "
        f"{captions} caption(s) each",
        "distractors": distractors or "none",
        "command": " ".join(["tandem", *sys.argv[1:]]),
        "tandem": __version__,
        "machine": f"{platform.machine()}, {platform.system()}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    if checkpoint is not None:
        chosen = _Offline(checkpoint, retriever, precision or Precision.FP32, fusion)
        measured = [_measure_offline(chosen, each, pool_sizes, about) for each in galleries]
    else:
        index_id = f"evaluation-{split.replace('_', '-')}-{seed}"
        measured = [
            _measure_served(
                address,
                f"{index_id}-{len(each.chosen)}" + (f"-{number}" if fold_count > 1 else ""),
                each,
                pool_sizes,
                about | {"concurrency": concurrency},
                query_count,
                concurrency,
            )
            for number, each in enumerate(galleries)
        ]
    whole = joined(measured)
    print_report(whole)
    if report is not None:
        _write(whole, report)


def _galleries(
    records: Sequence[Record],
    language: str | None,
    caption_count: int,
    fold_count: int,
    distractors: Sequence[Record],
) -> Iterator[Gallery]:
    if not records:
        raise ValueError("the corpus has no records to evaluate on")
    languages = [language] if language else languages_of([*records, *distractors])
    for fold in folds(records, fold_count):
        yield make_gallery(fold, languages, caption_count, distractors)


def _distractors(name: str | None, seed: int) -> Sequence[Record]:
    if name is None:
        return []
    # From the end, since a corpus's name may have a colon of its own.
    rest, _, count = name.rpartition(":")
    corpus, _, split = rest.rpartition(":")
    if not corpus or not count.isdecimal():
        raise typer.BadParameter(f"{name!r} is not CORPUS:SPLIT:COUNT, as in scenes:train:4000")
    # Another seed than the gallery's: scenes that are in neither twice.
    return list(open_corpus(corpus, split, seed + 1, int(count)))


def _title(corpus: str, split: str, seed: int, galleries: Sequence[Gallery]) -> str:
    first = galleries[0]
    title = f"{corpus} {split}, gallery of {first.asking_count:,}, seed {seed}"
    if behind := len(first.chosen) - first.asking_count:
        title += f", {behind:,} distractors"
    return title if len(galleries) == 1 else f"{title}, mean of {len(galleries)} folds"


def _measure_served(
    address: str,
    index_id: str,
    gallery: Gallery,
    pool_sizes: Sequence[int],
    about: dict[str, Any],
    query_count: int | None,
    concurrency: int,
) -> Report:
    with Client(address) as client:
        total = len(gallery.chosen) + len(gallery.pairs)
        if ingest_items(client, index_id, gallery.items(), total):
            errors.print("the gallery is not whole, so its recall would be of another set")
            raise typer.Exit(1)

    async def measure() -> Report:
        async with AsyncClient(address, timeout_seconds=60.0) as client:
            totals = {
                name: len(pool_sizes) * (query_count or len(gallery.languages(target)))
                for name, target in DIRECTIONS.items()
            }
            with _progress(totals) as show:
                done = dict.fromkeys(DIRECTIONS, 0)

                def count_answer(name: str) -> None:
                    done[name] += 1
                    show(name, done[name])

                return await served_report(
                    client,
                    index_id,
                    gallery,
                    pool_sizes,
                    about,
                    query_count=query_count,
                    concurrency=concurrency,
                    on_answer=count_answer,
                )

    return asyncio.run(measure())


def _measure_offline(
    options: _Offline, gallery: Gallery, pool_sizes: Sequence[int], about: dict[str, Any]
) -> Report:
    # Imported here: torch takes seconds, and nothing of the served path needs it.
    from tandem.evaluation.offline_report import offline_report
    from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
    from tandem.modeling.lowered import lowered

    def load(folder: Path) -> Checkpoint:
        loaded = load_checkpoint(folder)
        return replace(loaded, model=lowered(loaded.model, options.precision))

    checkpoint = load(options.checkpoint)
    retriever = load(options.retriever) if options.retriever else None
    made_by: dict[str, Any] = {
        "checkpoint": _name(options.checkpoint, checkpoint),
        "precision": options.precision,
    }
    if options.fusion_pool_size:
        made_by["fusion"] = f"over pools of {options.fusion_pool_size}"
    if options.retriever and retriever:
        made_by["retriever"] = _name(options.retriever, retriever)
    totals = {name: len(gallery.languages(target)) for name, target in DIRECTIONS.items()}
    with _progress(totals) as show:
        return offline_report(
            checkpoint,
            gallery,
            pool_sizes,
            about | made_by | {"title": f"{about['title']}, {options.precision}"},
            retriever=retriever,
            fusion_pool_size=options.fusion_pool_size,
            on_query=show,
        )


def _name(folder: Path, checkpoint: Any) -> str:  # noqa: ANN401 (torch, imported late)
    recipe = checkpoint.training.get("recipe", {})
    made = f", recipe {recipe['name']} seed {recipe['seed']}" if recipe else ""
    return f"{folder.name}, weights {checkpoint.weights_sha256[:12]}{made}"


@contextmanager
def _progress(totals: dict[str, int]) -> Iterator[OnProgress]:
    """Gives a function that shows how many queries of a direction are done."""
    with progress_bar("queries") as bar:
        tasks, start_times = {}, {}

        def show(name: str, done: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=totals[name], rate=0.0)
                start_times[name] = time.monotonic()
                return
            rate = done / (time.monotonic() - start_times[name])
            bar.update(tasks[name], completed=done, rate=rate)

        yield show


def print_report(report: Report) -> None:
    """Prints R@k with their 95 % intervals, a row a direction and order."""
    # Fits 80 columns, whatever the numbers.
    table = Table(
        title=report.about["title"], title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("direction")
    table.add_column("order by")
    for k in RECALL_AT:
        table.add_column(f"R@{k}   95 % CI", justify="right")
    last = ""
    for each in report.rankings:
        shown = "" if each.direction == last else each.direction
        table.add_row(shown, each.order_by, *map(recall_cell, each.recalls))
        last = each.direction
    out.print(table)


def _write(report: Report, folder: Path) -> None:
    # Imported here: drawing takes half a second, which most evaluations need not wait.
    from tandem.evaluation.plots import plot_recall_against_time

    plot_name = "recall_against_time.png"
    report.write(folder / "report.json")
    plot_recall_against_time(report, folder / plot_name)
    (folder / "report.md").write_text(report_markdown(report, plot_name), encoding="utf-8")
    out.print(f"written: {folder / 'report.md'}, report.json, {plot_name}")
