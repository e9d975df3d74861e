"""Writes an evaluation's report into a folder, and finds out before whether it can."""

from pathlib import Path
from tempfile import TemporaryFile

from tandem.cli.terminal.console import errors, out
from tandem.lab.evaluation.reports.plots import plot_recall_against_time
from tandem.lab.evaluation.reports.report import Report
from tandem.lab.evaluation.reports.report_markdown import report_markdown
from tandem.platform.files.whole_file import write_whole


def check_writable(folder: Path) -> None:
    """Makes the report's folder; raises ValueError, before anything is measured, where it can't be.

    Raises it also for a folder that is there and takes no file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"the report could not be written: {folder}: {error.strerror}; choose another --report"
        ) from error


def write_report(report: Report, folder: Path) -> bool:
    """Writes the report; returns whether all of it was written, and reports what was not."""
    try:
        return _write(report, folder)
    except OSError as error:
        errors.print(f"the report could not be written: {folder}: {error.strerror}")
        return False


def _write(report: Report, folder: Path) -> bool:
    """Writes the figures first, then the plot; returns whether all was written."""
    plot_name = "recall_against_time.png"
    report.write(folder / "report.json")
    page = report_markdown(report, plot_name)
    data = page.encode(errors="backslashreplace")
    write_whole(folder / "report.md", lambda fresh: fresh.write_bytes(data))
    try:
        plot_recall_against_time(report, folder / plot_name)
    except (
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:  # Matplotlib raises all of these.
        errors.print(f"written: {folder / 'report.md'}, report.json; not drawn: {error}")
        return False
    out.print(f"written: {folder / 'report.md'}, report.json, {plot_name}")
    return True
