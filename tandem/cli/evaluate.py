"""`tandem evaluate`: recall through the served path, or of a checkpoint without a server."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from tandem import __version__
from tandem.cli.addresses import ADDRESS
from tandem.cli.console import errors, out
from tandem.cli.corpora import CORPUS_HELP, corpus_place, open_corpus
from tandem.cli.progress import LongWork
from tandem.cli.served_measure import ServedMeasure
from tandem.corpus.errors import CorpusError
from tandem.corpus.records import Caption, Record
from tandem.evaluation.gallery import DIRECTIONS, Gallery, folds, languages_of, make_gallery
from tandem.evaluation.metrics import RECALL_AT
from tandem.evaluation.report import Report, joined
from tandem.evaluation.report_markdown import recall_cell, report_markdown
from tandem.evaluation.served import POOL_K
from tandem.model_io.precision import Precision
from tandem.model_io.readable_records import (
    OnError,
    RecordCheck,
    RecordFault,
    RecordUnreadable,
    SkippedRecords,
    readable_records,
)

if TYPE_CHECKING:
    from tandem.cli.offline_measure import OfflineMeasure

_READING = "read the gallery"
_BEST = "best expected R@1"
_ANY_MATCH = "all that shares the caption word by word"


def evaluate(
    corpus: Annotated[str, typer.Argument(help=CORPUS_HELP)] = "scenes",
    split: Annotated[str, typer.Option(help="split of the corpus")] = "test",
    gallery_count: Annotated[
        int,
        typer.Option("--count", help="pictures in the gallery; of scenes a multiple of 4", min=1),
    ] = 1_000,
    captions: Annotated[int, typer.Option(help="captions a picture", min=1)] = 1,
    language: Annotated[
        str | None,
        typer.Option(
            help="ask in this one alone, of the records that have it; unset takes turns through all"
        ),
    ] = None,
    fold_count: Annotated[
        int, typer.Option("--folds", help="galleries to divide the pictures into", min=1)
    ] = 1,
    distractors: Annotated[
        list[str] | None,
        typer.Option(
            help="CORPUS:SPLIT:COUNT to search among as well, never asking; may be said again"
        ),
    ] = None,
    any_match: Annotated[
        bool,
        typer.Option(
            "--any-match",
            help="all that shares the caption word by word answers, not its own alone",
        ),
    ] = False,
    query_count: Annotated[
        int | None, typer.Option(help="queries each way; unset asks with the whole gallery", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="which scenes")] = 1,
    k: Annotated[
        list[int] | None, typer.Option("--rerank-k", min=0, help="pool sizes to rerank; may repeat")
    ] = None,
    adaptive_depth: Annotated[
        bool,
        typer.Option(
            "--adaptive-depth",
            help="rerank as far as the model's rule finds worth it, up to --rerank-k; counts pairs",
        ),
    ] = False,
    concurrency: Annotated[int, typer.Option(help="searches at once", min=1)] = 8,
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
        typer.Option(
            "--fusion-k", min=1, help="with --checkpoint: pool size over which BE and CE are fused"
        ),
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(help="a record that cannot be read: stop at it, or skip and count it"),
    ] = OnError.STOP,
    regions: Annotated[
        Path | None, typer.Option(help="with --checkpoint: a file of regions to read for pixels")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="folder for report.json, report.md and a plot")
    ] = None,
) -> None:
    """Measures R@1, 5 and 10 both ways in a gallery of whole families.

    Each picture comes with one caption; families take turns through the languages. Without
    --checkpoint the gallery is ingested into an index of its own and asked through the services.
    """
    if checkpoint is None and (retriever or precision or fusion or regions):
        raise typer.BadParameter(
            "--retriever, --precision, --fusion-k and --regions need --checkpoint; "
            "a server has its own"
        )
    if checkpoint is not None and query_count is not None:
        raise typer.BadParameter("--checkpoint asks with the whole gallery: take --count")
    if checkpoint is not None and adaptive_depth:
        raise typer.BadParameter(
            "--adaptive-depth is asked of a server; of a checkpoint it is fitted and measured by "
            "tandem models calibrate"
        )
    pool_sizes = sorted(set(k or [POOL_K]))
    if checkpoint is not None and pool_sizes[0] == 0:
        raise typer.BadParameter("--checkpoint shows BE alone anyway: --rerank-k is 1 or more")
    measure: OfflineMeasure | ServedMeasure
    if checkpoint is not None:
        # Imported here: torch takes seconds, and nothing of the served path needs it.
        from tandem.cli.offline_measure import OfflineMeasure

        chosen = precision or Precision.FP32
        measure = OfflineMeasure(checkpoint, retriever, chosen, fusion, regions)
    else:
        measure = ServedMeasure(
            address, query_count, concurrency, on_error, is_depth_adaptive=adaptive_depth
        )
    skipped = SkippedRecords(goes_on=on_error is OnError.SKIP)
    # Scenes are had in whole families alone; of others one more tells whether the last is whole.
    count = gallery_count if corpus == "scenes" else gallery_count + 1
    records, cut = _first_records(open_corpus(corpus, split, seed, count, skipped), gallery_count)
    others = [
        other
        for each in distractors or ()
        for other in _distractors(each, seed, corpus, records, skipped)
    ]
    spoken = [_in_language(each, language) for each in (records, others)]
    left_out_count = len(records) + len(others) - sum(map(len, spoken))
    with LongWork() as work:
        work.show(_READING, 0, unit="records")
        galleries = _readable(
            _galleries(spoken[0], language, captions, fold_count, spoken[1], any_match=any_match),
            measure.check,
            on_error,
            skipped,
            partial(work.show, _READING),
        )
    about = {
        "title": _title(corpus, split, seed, galleries),
        "corpus": corpus,
        "split": split,
        "seed": seed,
        "galleries": f"{len(galleries)} of {galleries[0].asking_count:,} pictures, "
        f"{captions} caption(s) each",
        "language": _told_language(language, left_out_count),
        "distractors": ", ".join(distractors or ()) or "none",
        **({"answers": _ANY_MATCH} if any_match else {}),
        **({"last family": f"{cut}, in part"} if cut else {}),
        _BEST: _best(galleries, query_count),
        "skipped": "; ".join(skipped.record_lines()) or "none",
        "passed over": "; ".join(skipped.file_lines()) or "none",
        "command": " ".join(["tandem", *sys.argv[1:]]),
        "tandem": __version__,
        "machine": f"{platform.machine()}, {platform.system()}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    if cut:
        errors.print(
            f"the gallery ends inside the family {cut}, whose last pictures are not in it; another "
            "--count has it whole"
        )
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)  # what cannot be written is known before it
    whole = joined([measure.measure(gallery, pool_sizes, about) for gallery in galleries])
    # Written before it is shown: a terminal that left takes no figures with it.
    is_written = report is None or _is_written(whole, report)
    print_report(whole)
    for line in skipped.report():
        errors.print(line)
    if not is_written:
        raise typer.Exit(1)


def _first_records(corpus: Iterator[Record], count: int) -> tuple[list[Record], str]:
    """Returns the first `count` records, and the family that is cut behind them, or nothing."""
    records = list(islice(corpus, count))
    try:
        following = next(corpus, None)
    except CorpusError:
        return records, ""  # what is wrong with it is wrong with none that asks
    is_cut = following is not None and following.family == records[-1].family
    return records, records[-1].family if is_cut else ""


def _in_language(records: Sequence[Record], language: str | None) -> list[Record]:
    """Returns those that can ask or be found in it; a picture alone can, in any."""
    return [
        each
        for each in records
        if language is None
        or not each.captions
        or any(caption.language == language for caption in each.captions)
    ]


def _told_language(language: str | None, left_out_count: int) -> str:
    if not left_out_count:
        return language or "all in turn"
    return f"{language}, less {left_out_count:,} records that have no caption in it"


def _galleries(
    records: Sequence[Record],
    language: str | None,
    caption_count: int,
    fold_count: int,
    distractors: Sequence[Record],
    *,
    any_match: bool,
) -> Iterator[Gallery]:
    if not records:
        where = f" in {language!r}" if language else ""
        raise ValueError(f"the corpus has no records to evaluate on{where}")
    languages = [language] if language else languages_of([*records, *distractors])
    for fold in folds(records, fold_count):
        yield make_gallery(fold, languages, caption_count, distractors, any_match=any_match)


def _readable(
    galleries: Iterable[Gallery],
    check: RecordCheck,
    on_error: OnError,
    skipped: SkippedRecords,
    show: Callable[[int], None],
) -> list[Gallery]:
    """Returns each gallery less the records that cannot be read, by the captions it takes.

    A distractor is in every gallery, and is read and counted once.
    """
    verdicts: dict[tuple[int, tuple[Caption, ...]], bool] = {}
    readable = []
    for gallery in galleries:
        kept = set()
        for number, (record, captions) in enumerate(gallery.chosen):
            key = (id(record), captions)
            if key not in verdicts:
                taken = [replace(record, captions=captions)]
                whole_check = partial(_check_asking, check) if gallery.asks(number) else check
                show(len(verdicts))
                verdicts[key] = any(readable_records(taken, whole_check, on_error, skipped))
            if verdicts[key]:
                kept.add(number)
        rest = gallery.only(kept)
        if not rest.asking_count:
            raise ValueError(f"no record is left to ask with; {'; '.join(skipped.lines())}")
        readable.append(rest)
    return readable


def _check_asking(check: RecordCheck, record: Record) -> None:
    """Raises RecordUnreadable for what cannot be taken, or has no caption to ask with."""
    check(record)
    if not record.captions:
        raise RecordUnreadable(record, RecordFault.CAPTION_EMPTY, "it has none to ask with")


def _distractors(
    name: str, seed: int, asking_corpus: str, asking: Sequence[Record], skipped: SkippedRecords
) -> Iterator[Record]:
    """Returns so many records that do not ask; those of the asking corpus that do are passed over.

    They would be wrong answers to their own queries.
    """
    # From the end, since a corpus's name may have a colon of its own.
    rest, _, count = name.rpartition(":")
    corpus, _, split = rest.rpartition(":")
    if not corpus or not count.isdecimal():
        raise typer.BadParameter(f"{name!r} is not CORPUS:SPLIT:COUNT, as in scenes:train:4000")
    asked = set()
    # Of scenes another seed draws others, though it gives them the same names.
    if corpus != "scenes" and corpus_place(corpus) == corpus_place(asking_corpus):
        asked = {(each.split, each.record_id) for each in asking}
    others = open_corpus(corpus, split, seed + 1, int(count) + len(asked), skipped)
    if others.is_undivided:
        asked = {(split, record_id) for _, record_id in asked}
    unasked = (each for each in others if (each.split, each.record_id) not in asked)
    return islice(unasked, int(count))


def _best(galleries: Sequence[Gallery], query_count: int | None) -> str:
    """Returns what reading without a fault would come to, each way; of folds, over all queries."""
    means = []
    for direction, target in DIRECTIONS.items():
        asked = [gallery.asked(target, query_count) for gallery in galleries]
        each = map(Gallery.best_recall_at_1, galleries, repeat(target), asked)
        means.append(f"{direction} {fmean(each, map(len, asked)):.1f}")
    return ", ".join(means)


def _title(corpus: str, split: str, seed: int, galleries: Sequence[Gallery]) -> str:
    first = galleries[0]
    title = f"{corpus} {split}, gallery of {first.asking_count:,}, seed {seed}"
    if behind := len(first.chosen) - first.asking_count:
        title += f", {behind:,} distractors"
    return title if len(galleries) == 1 else f"{title}, mean of {len(galleries)} folds"


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
    # Below 100 where queries are true of several items, of which one is the answer.
    out.print(f"{_BEST}: {report.about[_BEST]}")


def _is_written(report: Report, folder: Path) -> bool:
    """Writes it; returns whether all of it is there, and says what is not."""
    try:
        return _write(report, folder)
    except OSError as error:
        errors.print(f"the report could not be written: {folder}: {error.strerror}")
        return False


def _write(report: Report, folder: Path) -> bool:
    """Writes the figures first, then what is made of them; returns whether all of it is there."""
    # Imported here: drawing takes half a second, which most evaluations need not wait.
    from tandem.evaluation.plots import plot_recall_against_time

    plot_name = "recall_against_time.png"
    report.write(folder / "report.json")
    page = report_markdown(report, plot_name)
    (folder / "report.md").write_text(page, encoding="utf-8", errors="backslashreplace")
    try:
        plot_recall_against_time(report, folder / plot_name)
    except (OSError, RuntimeError, TypeError, ValueError) as error:  # matplotlib raises all these
        errors.print(f"written: {folder / 'report.md'}, report.json; not drawn: {error}")
        return False
    out.print(f"written: {folder / 'report.md'}, report.json, {plot_name}")
    return True
