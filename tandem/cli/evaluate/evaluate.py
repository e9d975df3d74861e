"""`tandem evaluate`: measures recall of a running system, or of a checkpoint."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tandem.cli.corpora.detector_files import open_detector_files
from tandem.cli.evaluate.collection import BEST, Collection
from tandem.cli.evaluate.compare import GATE_STATUS, print_refusals, print_served
from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.evaluate.judged_measure import judged_reports
from tandem.cli.evaluate.served_measure import ServedMeasure
from tandem.cli.options import with_options
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, plain, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.corpus.readable_records import OnError, SkippedRecords
from tandem.corpus.record_regions import RecordRegions
from tandem.lab.evaluation.gallery import gallery_digest
from tandem.lab.evaluation.gate import GateRefusal, gate_verdict
from tandem.lab.evaluation.metrics import RECALL_AT
from tandem.lab.evaluation.reports.comparison import compare
from tandem.lab.evaluation.reports.machine import machine_about
from tandem.lab.evaluation.reports.plots import plot_recall_against_time
from tandem.lab.evaluation.reports.report import OF_THEM_ONLY, Ranking, Report, joined
from tandem.lab.evaluation.reports.report_markdown import (
    ORDER_METRICS,
    order_cells,
    recall_cell,
    report_markdown,
)
from tandem.platform.files.whole_file import check_writable, write_whole

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
    baseline = None if asked.gate is None else Report.read(asked.gate)
    if asked.report is not None:
        check_writable(asked.report, "--report")
    skipped = SkippedRecords(goes_on=asked.on_error is OnError.SKIP)
    if asked.queries is not None and asked.index is not None:
        [judged] = judged_reports(asked, [asked.index], asked.queries)
        whole = replace(judged, about={**judged.about, **_run_about()})
    else:
        whole = _of_galleries(asked, skipped)
    # Write before printing, so that a closed terminal loses no figures.
    is_written = asked.report is None or _write_report(whole, asked.report)
    refusals = [] if baseline is None else _refusals(whole, baseline)
    answer(plain(whole.as_json()) | ({} if baseline is None else {"refusals": refusals}))
    print_report(whole)
    refused = whole.about.get("refused by the server")
    for line in skipped.lines() if refused else skipped.report():
        errors.print(line)
    if refused:
        errors.print(f"left out: {refused} that the server refused, as said above")
    if baseline is not None:
        print_refusals(refusals, f"no worse than {asked.gate}")
    if not is_written:
        raise typer.Exit(1)
    if refusals:
        raise typer.Exit(GATE_STATUS)


def _of_galleries(asked: EvaluateOptions, skipped: SkippedRecords) -> Report:
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
        **_run_about(),
    }
    return joined([measure.measure(each, about) for each in galleries])


def _run_about() -> dict[str, str]:
    return {
        "command": " ".join(["tandem", *sys.argv[1:]]),
        **machine_about(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _refusals(report: Report, baseline: Report) -> list[GateRefusal]:
    """Returns what is worse; raises ValueError if the baseline is of other queries."""
    list(compare({"the report of --gate": [baseline], "this evaluation": [report]}))
    return gate_verdict(report, baseline)


def _measure(asked: EvaluateOptions, skipped: SkippedRecords) -> "OfflineMeasure | ServedMeasure":
    if asked.checkpoint is None:
        found = None
        if asked.regions is not None:
            found = RecordRegions(open_detector_files(asked.regions, skipped))
        return ServedMeasure(asked, found)
    # Imported here, because a running system is measured without torch.
    from tandem.cli.evaluate.offline_measure import OfflineMeasure

    return OfflineMeasure(asked.checkpoint, asked)


def _write_report(report: Report, folder: Path) -> bool:
    """Writes the figures first, then the plot; returns whether all was, and prints what was not."""
    plot_name, written = "recall_against_time.png", f"{folder / 'report.md'}, report.json"
    try:
        report.write(folder / "report.json")
        data = report_markdown(report, plot_name).encode(errors="backslashreplace")
        write_whole(folder / "report.md", lambda fresh: fresh.write_bytes(data))
    except OSError as error:
        errors.print(f"the report could not be written: {folder}: {error.strerror}")
        return False
    try:
        plot_recall_against_time(report, folder / plot_name)
    except (OSError, RuntimeError, TypeError, ValueError) as error:  # Matplotlib raises all.
        errors.print(f"written: {written}; not drawn: {error}")
        return False
    out.print(f"written: {written}, {plot_name}")
    return True


def print_report(report: Report) -> None:
    """Prints R@k with 95 % intervals, and the metrics of whole orders, a row for each order."""
    recall_names = [f"R@{k}   95 % CI" for k in RECALL_AT]
    out.print(report.about["title"])
    _print_rows(report, recall_names, lambda each: map(recall_cell, each.recalls))
    # The best is below 100 if a query matches several items, of which one is the answer.
    for name in (OF_THEM_ONLY, BEST):
        if name in report.about:
            out.print(f"{name}: {report.about[name]}")
    _print_rows(report, ORDER_METRICS, order_cells)
    print_served({"": report})


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
