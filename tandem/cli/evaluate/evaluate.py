"""`tandem evaluate`: measures recall of a running system, or of a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from tandem.cli.corpora.corpora import CORPUS_HELP, corpus_place, open_corpus
from tandem.cli.corpora.detector_files import open_detector_files
from tandem.cli.evaluate.report_folder import check_writable, write_report
from tandem.cli.evaluate.served_measure import ServedMeasure
from tandem.cli.ingest.ingest import LongTexts
from tandem.cli.options import ADDRESS
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.plain_json import plain
from tandem.cli.terminal.progress import LongWork
from tandem.contract.content import TruncationPolicy
from tandem.corpus.errors import CorpusError
from tandem.corpus.readable_records import (
    OnError,
    RecordCheck,
    SkippedRecords,
    check_asking,
    readable_records,
)
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.records import Caption, Record
from tandem.evaluation.gallery import DIRECTIONS, Gallery, folds, languages_of, make_gallery
from tandem.evaluation.gallery_digest import gallery_digest
from tandem.evaluation.metrics import RECALL_AT
from tandem.evaluation.reports.machine import machine_about
from tandem.evaluation.reports.report import Ranking, Report, joined
from tandem.evaluation.reports.report_markdown import ORDER_METRICS, order_cells, recall_cell
from tandem.evaluation.served import POOL_K
from tandem.repository.precision import Precision
from tandem.texts.visible_text import folded_text

if TYPE_CHECKING:
    from tandem.cli.evaluate.offline_measure import OfflineMeasure

_READING = "read the gallery"
_DIGESTING = "digest the gallery"
_BEST = "best expected R@1"
_ANY_MATCH = "all that shares the caption word by word"


@with_json
def evaluate(
    corpus: Annotated[str, typer.Argument(help=CORPUS_HELP)] = "scenes",
    split: Annotated[str, typer.Option(help="split of the corpus")] = "test",
    gallery_count: Annotated[
        int,
        typer.Option("--count", help="images in the gallery; for scenes a multiple of 4", min=1),
    ] = 1_000,
    captions: Annotated[int, typer.Option(help="captions a picture", min=1)] = 1,
    language: Annotated[
        str | None,
        typer.Option(help="language of the queries; by default all in turns"),
    ] = None,
    fold_count: Annotated[
        int, typer.Option("--folds", help="number of galleries to split the images into", min=1)
    ] = 1,
    distractors: Annotated[
        list[str] | None,
        typer.Option(help="CORPUS:SPLIT:COUNT of distractors, which never are queries; may repeat"),
    ] = None,
    any_match: Annotated[
        bool,
        typer.Option(
            "--any-match",
            help="whether all items with an equal caption count as right",
        ),
    ] = False,
    query_count: Annotated[
        int | None,
        typer.Option(help="queries in each direction; by default the whole gallery", min=1),
    ] = None,
    seed: Annotated[int, typer.Option(help="which scenes")] = 1,
    k: Annotated[
        list[int] | None,
        typer.Option("--rerank-k", min=0, help="pool sizes to rerank, 0 for none; may repeat"),
    ] = None,
    adaptive_depth: Annotated[
        bool,
        typer.Option(
            "--adaptive-depth",
            help="stop reranking, before --rerank-k, once the top result is unlikely to change",
        ),
    ] = False,
    concurrency: Annotated[int, typer.Option(help="searches at once", min=1)] = 8,
    address: ADDRESS = "127.0.0.1:7400",
    checkpoint: Annotated[
        Path | None, typer.Option(help="measure this checkpoint without a server")
    ] = None,
    retriever: Annotated[
        Path | None, typer.Option(help="with --checkpoint: another checkpoint whose BE retrieves")
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="with --checkpoint: the precision; by default fp32")
    ] = None,
    fusion: Annotated[
        int | None,
        typer.Option("--fusion-k", min=1, help="with --checkpoint: pool size for score fusion"),
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(help="what to do with an unreadable record: stop, or skip and count it"),
    ] = OnError.STOP,
    long_texts: Annotated[
        LongTexts,
        typer.Option(
            "--truncation-policy",
            help="what to do with a caption over the model's token limit: refuse it, or truncate "
            "it as papers that measure CLIP do",
        ),
    ] = LongTexts.ERROR,
    regions: Annotated[
        Path | None,
        typer.Option(
            help="a detector's files, whose regions are sent instead of images; with --checkpoint "
            "the file that tandem regions writes"
        ),
    ] = None,
    allow_trained: Annotated[
        bool,
        typer.Option(
            "--allow-trained",
            help="with --checkpoint: also measure on pictures that it was trained on, or that "
            "--neighbours were",
        ),
    ] = False,
    neighbours: Annotated[
        list[str] | None,
        typer.Option(
            help="with --checkpoint: also reorder by a folder of tandem train neighbours, or by a "
            "method without labels, such as krnn; may repeat"
        ),
    ] = None,
    neighbours_dev: Annotated[
        Path | None,
        typer.Option(help="with --neighbours: lists of dev, on which settings are chosen"),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="folder for report.json, report.md and a plot")
    ] = None,
) -> None:
    """Measure R@1, R@5 and R@10 in both directions.

    The gallery is of whole families. Each image has one caption; families take turns through the
    languages. Without --checkpoint the gallery is ingested into its own index and searched through
    the services.
    """
    if checkpoint is None and (retriever or precision or fusion):
        raise typer.BadParameter(
            "--retriever, --precision and --fusion-k need --checkpoint; a server has its own"
        )
    if checkpoint is None and allow_trained:
        raise typer.BadParameter(
            "--allow-trained needs --checkpoint; a server does not know what its model has seen"
        )
    if checkpoint is None and neighbours:
        raise typer.BadParameter("--neighbours needs --checkpoint")
    if neighbours_dev is not None and not neighbours:
        raise typer.BadParameter("--neighbours-dev chooses settings of --neighbours: give one")
    if neighbours and distractors:
        raise typer.BadParameter("--neighbours reads all queries, and --distractors ask nothing")
    if checkpoint is not None and query_count is not None:
        raise typer.BadParameter("--checkpoint asks with the whole gallery: take --count")
    if checkpoint is not None and adaptive_depth:
        raise typer.BadParameter(
            "--adaptive-depth is asked of a server; of a checkpoint it is fitted and measured by "
            "tandem models calibrate"
        )
    pool_sizes = sorted(set(k or [POOL_K]))
    policy = TruncationPolicy(long_texts.value)
    skipped = SkippedRecords(goes_on=on_error is OnError.SKIP)
    measure: OfflineMeasure | ServedMeasure
    if checkpoint is not None:
        # Imported here, because torch takes seconds and the served path does not need it.
        from tandem.cli.evaluate.offline_measure import OfflineMeasure

        chosen = precision or Precision.FP32
        measure = OfflineMeasure(
            checkpoint,
            retriever,
            chosen,
            fusion,
            regions,
            asks_of=(corpus, split, seed),
            truncation_policy=policy,
        )
        if neighbours:
            measure.reorder_by_neighbours(
                neighbours, neighbours_dev, pool_sizes, allows_trained=allow_trained
            )
    else:
        found = None
        if regions is not None:
            found = RecordRegions(open_detector_files(regions, skipped))
        measure = ServedMeasure(
            address,
            query_count,
            concurrency,
            on_error,
            is_depth_adaptive=adaptive_depth,
            regions=found,
        )
    # Scenes come in whole families; for others, one more record shows whether the last is whole.
    count = gallery_count if corpus == "scenes" else gallery_count + 1
    records, cut = _first_records(open_corpus(corpus, split, seed, count, skipped), gallery_count)
    behind = [
        list(_distractors(each, seed, corpus, records, skipped)) for each in distractors or ()
    ]
    others = [other for each in behind for other in each]
    if language is not None:
        _check_spoken(records, language)
    spoken = [_in_language(each, language) for each in (records, others)]
    left_out_count = len(records) + len(others) - sum(map(len, spoken))
    with LongWork() as work:
        work.show(_READING, 0, unit="records")
        galleries = _readable(
            _galleries(
                spoken[0],
                language,
                captions,
                fold_count,
                spoken[1],
                any_match=any_match,
                truncation_policy=policy,
                unread=skipped.unread_lists(),
            ),
            measure.check,
            on_error,
            skipped,
            partial(work.show, _READING),
        )
        work.show(_DIGESTING, 0, unit="galleries")
        digest = gallery_digest(galleries, reads_pictures=regions is None)
    repeated_count = sum(_repeated_count(gallery, digest.pictures) for gallery in galleries)
    about = {
        "title": _title(corpus, split, seed, galleries),
        "corpus": corpus,
        "corpus digest": digest.sha256[:16],
        "split": split,
        "seed": seed,
        "galleries": f"{len(galleries)} of {galleries[0].asking_count:,} pictures, "
        f"{captions} caption(s) each",
        "language": _described_language(language, left_out_count),
        "distractors": ", ".join(map(_described_distractors, distractors or (), behind)) or "none",
        **({"answers": _ANY_MATCH} if any_match else {}),
        **({"last family": f"{cut}, in part"} if cut else {}),
        **({"long captions": "truncated"} if policy is TruncationPolicy.TRUNCATE else {}),
        _BEST: _best(galleries, query_count),
        **({"repeated pictures": f"{repeated_count:,}"} if repeated_count else {}),
        "skipped": "; ".join(skipped.record_lines()) or "none",
        "passed over": "; ".join(skipped.file_lines()) or "none",
        **measure.origin(digest, allows_trained=allow_trained),
        "command": " ".join(["tandem", *sys.argv[1:]]),
        **machine_about(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    if cut:
        errors.print(
            f"the gallery ends inside the family {cut}, whose last pictures are not in it; another "
            "--count has it whole"
        )
    for name, those in zip(distractors or (), behind, strict=True):
        if len(those) < _wanted_count(name):
            errors.print(
                f"{_described_distractors(name, those)}: the split has no more records that are no "
                "queries"
            )
    if repeated_count:
        errors.print(
            f"{repeated_count:,} pictures have the same file as another of their gallery, so that "
            f"no model can tell which of them answers, which {_BEST} does not count; give a "
            "picture one record with all of its captions"
        )
    if report is not None:
        check_writable(report)
    whole = joined([measure.measure(gallery, pool_sizes, about) for gallery in galleries])
    # Write before printing, so that a closed terminal loses no figures.
    is_written = report is None or write_report(whole, report)
    answer(plain(whole.as_json()))
    print_report(whole)
    refused = whole.about.get("refused by the server")
    for line in skipped.lines() if refused else skipped.report():
        errors.print(line)
    if refused:
        errors.print(f"left out: {refused} that the server refused, as said above")
    if not is_written:
        raise typer.Exit(1)


def _repeated_count(gallery: Gallery, pictures: Mapping[str, bytes]) -> int:
    """Returns how many asking pictures have another one's file, and share no caption with it."""
    said_of: dict[bytes, list[set[str]]] = {}
    for record, captions in gallery.chosen[: gallery.asking_count]:
        if record.record_id in pictures:
            said = {folded_text(each.text) for each in captions}
            said_of.setdefault(pictures[record.record_id], []).append(said)
    return sum(len(each) for each in said_of.values() if not set.intersection(*each))


def _first_records(corpus: Iterator[Record], count: int) -> tuple[list[Record], str]:
    """Returns the first `count` records, and the family that this cuts, if any."""
    records = list(islice(corpus, count))
    try:
        following = next(corpus, None)
    except CorpusError:
        return records, ""  # Its fault concerns no query.
    is_cut = following is not None and following.family == records[-1].family
    return records, records[-1].family if is_cut else ""


def _in_language(records: Sequence[Record], language: str | None) -> list[Record]:
    """Returns the records that have a caption in the language, or no caption at all."""
    return [
        each
        for each in records
        if language is None
        or not each.captions
        or any(caption.language == language for caption in each.captions)
    ]


def _check_spoken(records: Sequence[Record], language: str) -> None:
    """Raises ValueError, naming the languages that there are, if no caption is in this one."""
    there = sorted({caption.language for each in records for caption in each.captions})
    if there and language not in there:
        raise ValueError(
            f"no caption is in {language!r}; the corpus has captions in {', '.join(there)}: name "
            "one of them with --language"
        )


def _described_language(language: str | None, left_out_count: int) -> str:
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
    truncation_policy: TruncationPolicy,
    unread: str,
) -> Iterator[Gallery]:
    if not records:
        raise ValueError("the corpus has no records to evaluate on")
    if not any(each.captions for each in records):
        what = "no record has a caption, so there is nothing to search for or to find"
        raise ValueError("; ".join(filter(None, (what, unread))))
    languages = [language] if language else languages_of([*records, *distractors])
    for fold in folds(records, fold_count):
        made = make_gallery(fold, languages, caption_count, distractors, any_match=any_match)
        yield replace(made, truncation_policy=truncation_policy)


def _readable(
    galleries: Iterable[Gallery],
    check: RecordCheck,
    on_error: OnError,
    skipped: SkippedRecords,
    show: Callable[[int], None],
) -> list[Gallery]:
    """Returns each gallery without its unreadable records.

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
                whole_check = partial(check_asking, check) if gallery.asks(number) else check
                show(len(verdicts))
                verdicts[key] = any(readable_records(taken, whole_check, on_error, skipped))
            if verdicts[key]:
                kept.add(number)
        rest = gallery.only(kept)
        if not rest.asking_count:
            raise ValueError(f"no record is left to ask with; {'; '.join(skipped.lines())}")
        readable.append(rest)
    return readable


def _distractors(
    name: str, seed: int, asking_corpus: str, asking: Sequence[Record], skipped: SkippedRecords
) -> Iterator[Record]:
    """Returns distractors, without records that are queries.

    Those would be wrong answers to their own queries.
    """
    # From the end, because a corpus's name may contain a colon.
    rest, _, number = name.rpartition(":")
    corpus, _, split = rest.rpartition(":")
    if not corpus or not number.isdecimal():
        raise typer.BadParameter(f"{name!r} is not CORPUS:SPLIT:COUNT, as in scenes:train:4000")
    count = _wanted_count(name)
    queried = set()
    # Another seed draws other scenes under the same names.
    if corpus != "scenes" and corpus_place(corpus) == corpus_place(asking_corpus):
        queried = {(each.split, each.record_id) for each in asking}
    others = open_corpus(corpus, split, seed + 1, count + len(queried), skipped)
    if others.is_undivided:
        queried = {(split, record_id) for _, record_id in queried}
    distractors = (each for each in others if (each.split, each.record_id) not in queried)
    return islice(distractors, count)


def _wanted_count(name: str) -> int:
    """Returns the count of CORPUS:SPLIT:COUNT."""
    return int(name.rpartition(":")[2])


def _described_distractors(name: str, found: Sequence[Record]) -> str:
    """Returns the name, with the number of distractors where there are fewer than it asks for."""
    return (
        name if len(found) == _wanted_count(name) else f"{name}, of which there are {len(found):,}"
    )


def _best(galleries: Sequence[Gallery], query_count: int | None) -> str:
    """Returns the ceiling in each direction, over the queries of all folds."""
    means = []
    for direction, target in DIRECTIONS.items():
        query_numbers = [gallery.query_numbers(target, query_count) for gallery in galleries]
        each = map(Gallery.best_recall_at_1, galleries, repeat(target), query_numbers)
        means.append(f"{direction} {fmean(each, map(len, query_numbers)):.1f}")
    return ", ".join(means)


def _title(corpus: str, split: str, seed: int, galleries: Sequence[Gallery]) -> str:
    first = galleries[0]
    title = f"{corpus} {split}, gallery of {first.asking_count:,}, seed {seed}"
    if behind := len(first.chosen) - first.asking_count:
        title += f", {behind:,} distractors"
    return title if len(galleries) == 1 else f"{title}, mean of {len(galleries)} folds"


def print_report(report: Report) -> None:
    """Prints R@k with 95 % intervals, and the metrics of whole orders, a row for each order."""
    recall_names = [f"R@{k}   95 % CI" for k in RECALL_AT]
    _print_rows(report, recall_names, lambda each: map(recall_cell, each.recalls), has_title=True)
    # Below 100 if a query matches several items, of which one is the answer.
    out.print(f"{_BEST}: {report.about[_BEST]}")
    _print_rows(report, ORDER_METRICS, order_cells)


def _print_rows(
    report: Report,
    names: Sequence[str],
    cells: Callable[[Ranking], Iterable[str]],
    *,
    has_title: bool = False,
) -> None:
    """Prints a row for each direction and order; fits 80 columns for any numbers."""
    table = Table("direction", "order by", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.title = report.about["title"] if has_title else None
    for name in names:
        table.add_column(name, justify="right")
    last = ""
    for each in report.rankings:
        shown = "" if each.direction == last else each.direction
        table.add_row(shown, each.order_by, *cells(each))
        last = each.direction
    out.print(table)
