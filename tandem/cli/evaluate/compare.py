"""Implements `tandem compare`: compares reports of several systems or seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.lab.evaluation.gate import GateRefusal
from tandem.lab.evaluation.reports.comparison import compare as compare_reports
from tandem.lab.evaluation.reports.report import Report
from tandem.lab.evaluation.reports.report_markdown import SERVED_HEADS, served_rows

GATE_STATUS: Final = 3
"""The exit status if the gate refuses; 1 is a failure, 2 a wrong command line."""


@with_json
def compare(
    systems: Annotated[
        list[str],
        typer.Argument(help="NAME=REPORT[,REPORT...]: a system's report.json, one per seed"),
    ],
) -> None:
    """Compare R@1 of systems on the same queries.

    Each is compared with the first.
    Several reports of one system are its seeds; their mean and sample deviation are shown, and the
    95 % interval of the mean over such seeds (Student's t). p is
    the p-value of an exact McNemar test against the first system (a query that several seeds answer
    counts once).
    """
    reports: dict[str, list[Report]] = {}
    for name, of_seeds in map(_system, systems):
        reports.setdefault(name, []).extend(of_seeds)
    print_comparison(reports)


def print_comparison(
    reports: Mapping[str, Sequence[Report]], refusals: Sequence[GateRefusal] | None = None
) -> None:
    """Prints each system's R@1 over its seeds, and its difference from the first.

    As JSON with the refusals of a gate, if there was one.
    """
    has_seeds = any(len(of_one) > 1 for of_one in reports.values())
    heads = ["R@1", *(["95 % interval"] if has_seeds else []), "difference", "p"]
    rows = [["direction", "order by", "system", *heads]]
    compared = list(compare_reports(reports))
    answer({"orders": compared} | ({} if refusals is None else {"refusals": refusals}))
    for each in compared:
        is_first = each.system == next(iter(reports))
        row = [each.direction, each.order_by, each.system, str(each.recall_at_1)]
        row += [each.recall_at_1.interval_text] if has_seeds else []
        row += ["", ""] if is_first else [f"{each.difference:+.1f}", f"{each.p_value:.2g}"]
        rows.append(row)
    out.rows(rows, left=range(3))


def print_refusals(refusals: Sequence[GateRefusal], passed: str) -> None:
    """Prints why a gate refuses, or that it does not."""
    for each in refusals:
        errors.print(f"refused: {each}")
    if not refusals:
        out.print(f"gate: {passed}")


def print_served(reports: Mapping[str, Report]) -> None:
    """Prints times, empty answers and calibration of each index's orders, if a server gave any."""
    rows = [[name, *cells] for name, report in reports.items() for cells in served_rows(report)]
    if rows:
        out.rows([["", *SERVED_HEADS], *rows], left=range(3))


def _system(argument: str) -> tuple[str, list[Report]]:
    name, separator, paths = argument.partition("=")
    if not separator:
        raise typer.BadParameter(f"{argument!r} is not NAME=REPORT, as in joint=a/report.json")
    return name, [Report.read(Path(path)) for path in paths.split(",")]
