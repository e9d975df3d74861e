"""`tandem evaluate`: measures recall of a running system, or of a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import typer

from tandem.cli.corpora.detector_files import open_detector_files
from tandem.cli.evaluate.collection import BEST, Collection
from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.evaluate.report_folder import check_writable, write_report
from tandem.cli.evaluate.served_measure import ServedMeasure
from tandem.cli.options import with_options
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, plain, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.corpus.readable_records import OnError, SkippedRecords
from tandem.corpus.record_regions import RecordRegions
from tandem.lab.evaluation.gallery_digest import gallery_digest
from tandem.lab.evaluation.metrics import RECALL_AT
from tandem.lab.evaluation.reports.machine import machine_about
from tandem.lab.evaluation.reports.report import Ranking, Report, joined
from tandem.lab.evaluation.reports.report_markdown import ORDER_METRICS, order_cells, recall_cell

if TYPE_CHECKING:
    from tandem.cli.evaluate.offline_measure import OfflineMeasure

_READING = "read the gallery"


@with_json
@with_options
def evaluate(asked: EvaluateOptions) -> None:
    """Measure R@1, R@5 and R@10 in both directions.

    The gallery is of whole families. Each image has one caption; families take turns through the
    languages. Without --checkpoint the gallery is ingested into its own index and searched through
    the services.
    """
    skipped = SkippedRecords(goes_on=asked.on_error is OnError.SKIP)
    measure = _measure(asked, skipped)
    collection = Collection(asked, skipped)
    with LongWork() as work:
        work.show(_READING, 0, unit="records")
        galleries = collection.galleries(measure.check, partial(work.show, _READING))
        work.show("digest the gallery", 0, unit="galleries")
        digest = gallery_digest(galleries, reads_pictures=asked.regions is None)
    about = {
        **collection.about(galleries, digest),
        **measure.origin(digest),
        "command": " ".join(["tandem", *sys.argv[1:]]),
        **machine_about(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    if asked.report is not None:
        check_writable(asked.report)
    whole = joined([measure.measure(each, asked.pool_sizes, about) for each in galleries])
    # Write before printing, so that a closed terminal loses no figures.
    is_written = asked.report is None or write_report(whole, asked.report)
    answer(plain(whole.as_json()))
    print_report(whole)
    refused = whole.about.get("refused by the server")
    for line in skipped.lines() if refused else skipped.report():
        errors.print(line)
    if refused:
        errors.print(f"left out: {refused} that the server refused, as said above")
    if not is_written:
        raise typer.Exit(1)


def _measure(asked: EvaluateOptions, skipped: SkippedRecords) -> OfflineMeasure | ServedMeasure:
    if asked.checkpoint is None:
        found = None
        if asked.regions is not None:
            found = RecordRegions(open_detector_files(asked.regions, skipped))
        return ServedMeasure(
            asked.address,
            asked.query_count,
            asked.concurrency,
            asked.on_error,
            is_depth_adaptive=asked.adaptive_depth,
            regions=found,
        )
    # Imported here, because a running system is measured without torch.
    from tandem.cli.evaluate.offline_measure import OfflineMeasure

    return OfflineMeasure(asked.checkpoint, asked)


def print_report(report: Report) -> None:
    """Prints R@k with 95 % intervals, and the metrics of whole orders, a row for each order."""
    recall_names = [f"R@{k}   95 % CI" for k in RECALL_AT]
    out.print(report.about["title"])
    _print_rows(report, recall_names, lambda each: map(recall_cell, each.recalls))
    # Below 100 if a query matches several items, of which one is the answer.
    out.print(f"{BEST}: {report.about[BEST]}")
    _print_rows(report, ORDER_METRICS, order_cells)


def _print_rows(
    report: Report, names: Sequence[str], cells: Callable[[Ranking], Iterable[str]]
) -> None:
    """Prints a row for each direction and order; fits 80 columns for any numbers."""
    rows, last = [["direction", "order by", *names]], ""
    for each in report.rankings:
        shown = "" if each.direction == last else each.direction
        rows.append([shown, each.order_by, *cells(each)])
        last = each.direction
    out.rows(rows, left=[0, 1])
