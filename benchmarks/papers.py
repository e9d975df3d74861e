"""Renders the tables of docs/papers.md from what was measured, with verdicts that are computed.

    python -m benchmarks.papers            # writes the parts between markers
    python -m benchmarks.papers --check    # exits with 1 if a page has other parts

results/papers.json has `runs` (page, command, commit, CPU, date: what repeats a measurement) and
`papers`: rows of measurements. A row's `expects` is what the paper says of the last of a
measurement's figures compared with the first: "above", "below", or {"within": points}. A verdict
is computed from that, the number of seeds and a paired test, and is never written by hand.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, Final

from tandem.lab.evaluation.reports.spread import Spread, t_quantile

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "benchmarks" / "results" / "papers.json"
PAPERS_PAGE: Final = "docs/papers.md"
RUNS_PAGE: Final = "docs/results.md"
ENOUGH_SEEDS: Final = 3
LEVEL: Final = 0.05
AGREES: Final = "agrees"
DIFFERS: Final = "differs"
NOT_SHOWN: Final = "not shown"
NO_P: Final = "no p"
NOT_JUDGED: Final = "not judged"
NOT_RUN: Final = "not run"
_FEW: Final = {1: "one", 2: "two"}

Figure = float | list[float]
"""A mean alone, or the value of each seed."""
Expectation = str | dict[str, float] | None


@dataclass(frozen=True, slots=True)
class Run:
    """What repeats a measurement."""

    command: str
    commit: str
    cpu: str
    date: str
    page: str | None = None
    """Its page in benchmarks/results."""
    letter: str | None = None
    """Its name in docs/results.md."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures of one or more systems, each a list by direction."""

    of: str
    run: str | None = None
    anchor: str = ""
    seeds: int = 1
    queries: int | None = None
    figures: Mapping[str, list[Figure]] | None = None
    p: list[float] | None = None
    """Of a paired test over the queries of all seeds, by direction: the last against the first."""
    deviations: list[float] | None = None
    """Of the last figures over seeds, where each was not kept and the first are of one model."""
    unit: str = "seed"
    served: Mapping[str, Any] | None = None
    """The same measured as a search serves it: fields that differ."""

    def __post_init__(self) -> None:
        """Raises ValueError if a figure has another number of seeds."""
        for label, figures in (self.figures or {}).items():
            for figure in figures:
                if isinstance(figure, list) and len(figure) != self.seeds:
                    raise ValueError(f"{self.of}: {label} has {len(figure)} values")

    def as_served(self) -> "Measurement | None":
        """Returns the served measurement, whose first figures are those of the unserved one."""
        if self.served is None:
            return None
        fields = dict(self.served)
        first = dict(list((self.figures or {}).items())[:1])
        return Measurement(of=self.of, figures=first | fields.pop("figures"), **fields)

    def differences(self) -> "list[Difference]":
        """Returns the last figures less the first, by direction; none for fewer than two."""
        if not self.figures or len(self.figures) < 2:
            return []
        first, *_, last = self.figures.values()
        none: list[float | None] = [None] * len(first)
        columns = zip(first, last, self.p or none, self.deviations or none, strict=True)
        return [Difference.of(self.seeds, *each) for each in columns]


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher one figure is than another."""

    points: float
    p: float | None
    interval: tuple[float, float] | None
    """95 %, by Student's t over seeds in pairs; None where nothing of the seeds was kept."""

    @classmethod
    def of(
        cls, seeds: int, first: Figure, last: Figure, p: float | None, deviation: float | None
    ) -> "Difference":
        """Returns the difference of two figures, by their seeds if these are enough."""
        points, interval = _mean(last) - _mean(first), None
        if isinstance(first, list) and isinstance(last, list) and seeds >= ENOUGH_SEEDS:
            gaps = tuple(b - a for a, b in zip(first, last, strict=True))
            interval = Spread(gaps).interval
        elif deviation is not None and seeds >= ENOUGH_SEEDS:
            half = t_quantile(seeds - 1) * deviation / sqrt(seeds)
            interval = points - half, points + half
        return cls(points, p, interval)

    def outcome(self, expects: str | dict[str, float]) -> str:
        """Returns whether the difference is as expected, is not, or leaves it open.

        The queries' p and the interval over seeds must say the same, where both were kept.
        """
        said = {_said(each, expects) for each in (self._implied(), self.interval) if each}
        if not said and self.p is None:
            return NO_P
        return said.pop() if len(said) == 1 else NOT_SHOWN

    def _implied(self) -> tuple[float, float] | None:
        """Returns the interval of a normal distribution that has this p; a p of 1 has none."""
        if self.p is None or self.p >= 1:
            return None
        normal = NormalDist()
        half = abs(self.points * normal.inv_cdf(LEVEL / 2) / normal.inv_cdf(self.p / 2))
        return self.points - half, self.points + half


def _said(interval: tuple[float, float], expects: str | dict[str, float]) -> str:
    """Returns what an interval of a difference says: all, none or part of it is as expected."""
    if isinstance(expects, dict):
        least, most = -expects["within"], expects["within"]
    else:
        least, most = (0.0, inf) if expects == "above" else (-inf, 0.0)
    low, high = interval
    if least < low and high < most:
        return AGREES
    return DIFFERS if low > most or high < least else NOT_SHOWN


@dataclass(frozen=True, slots=True)
class Row:
    """One statement of a paper, and what was measured of it."""

    table: str
    published: str
    measured: Sequence[Measurement] = ()
    expects: Expectation = None
    reading: str = ""


def verdict(expects: Expectation, measurement: Measurement) -> str:
    """Returns what a measurement says of what the paper expects, by direction if they differ."""
    if measurement.seeds < ENOUGH_SEEDS and measurement.figures:
        plural = "s" if measurement.seeds > 1 else ""
        return f"{_FEW[measurement.seeds]} {measurement.unit}{plural}"
    differences = measurement.differences()
    if expects is None or not differences:
        return NOT_JUDGED
    return " / ".join(dict.fromkeys(each.outcome(expects) for each in differences))


def kept_record() -> dict[str, Any]:
    """Returns what results/papers.json holds."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def rows_of(paper: Mapping[str, Any]) -> list[Row]:
    """Returns a paper's rows."""
    return [
        Row(**(row | {"measured": [Measurement(**each) for each in row.get("measured", [])]}))
        for row in paper["rows"]
    ]


def rendered(record: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Returns each part by its page and marker."""
    runs = {name: Run(**run) for name, run in record["runs"].items()}
    parts = {(RUNS_PAGE, "runs"): "\n".join(_run_lines(runs)) + "\n"}
    for name, paper in record["papers"].items():
        parts[PAPERS_PAGE, name] = "\n".join(_paper_lines(rows_of(paper), runs)) + "\n"
    return parts


def with_part(text: str, marker: str, part: str) -> str:
    """Returns a page's text with the part between its markers replaced.

    Raises ValueError if the page has no such markers.
    """
    before, begin, rest = text.partition(f"<!-- {marker} -->\n")
    _, end, after = rest.partition(f"<!-- end of {marker} -->")
    if not (begin and end):
        raise ValueError(f"no part {marker}")
    return before + begin + part + end + after


def _paper_lines(rows: Sequence[Row], runs: Mapping[str, Run]) -> Iterator[str]:
    is_served = any(each.served for row in rows for each in row.measured)
    names = ["table or figure", "the paper", "here", "seeds, queries", "figures", "p and interval"]
    names += ["verdict", *(["as served"] if is_served else [])]
    yield _line(names)
    yield _line(["---"] * len(names))
    for row in rows:
        head = [row.table, row.published]
        for each in row.measured:
            served = each.as_served()
            cells = [_linked(each, runs), _count(each), _figures(each), _test(each)]
            cells += [verdict(row.expects, each)]
            if is_served:
                cells += [_served(row.expects, served) if served else ""]
            yield _line(head + cells)
            head = ["", ""]
        if not row.measured:
            yield _line([*head, "", "", "", "", NOT_RUN, *([""] if is_served else [])])
    yield ""
    for row in rows:
        if row.reading:
            yield f"- **{row.table}**: {row.reading}"


def _run_lines(runs: Mapping[str, Run]) -> Iterator[str]:
    yield _line(["run", "command", "commit", "CPU or GPU", "date"])
    yield _line(["---"] * 5)
    for run in sorted(runs.values(), key=lambda each: each.letter or ""):
        if run.letter:
            name = f"[{run.letter}]({_page(run)})" if run.page else run.letter
            yield _line([name, f"`{run.command}`", run.commit, run.cpu, run.date])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _page(run: Run) -> str:
    return f"../benchmarks/results/{run.page}"


def _linked(measurement: Measurement, runs: Mapping[str, Run]) -> str:
    run = runs[measurement.run] if measurement.run else None
    if run is None or run.page is None:
        return measurement.of
    return f"[{measurement.of}]({_page(run)}{measurement.anchor})"


def _count(measurement: Measurement) -> str:
    if not measurement.figures:
        return ""
    plural = "s" if measurement.seeds > 1 else ""
    count = f"{measurement.seeds} {measurement.unit}{plural}"
    return f"{count}, {measurement.queries:,}" if measurement.queries else count


def _figures(measurement: Measurement) -> str:
    return "; ".join(
        f"{label} {_text(values, measurement.unit)}"
        for label, values in (measurement.figures or {}).items()
    )


def _text(values: Sequence[Figure], unit: str) -> str:
    """Returns figures by direction: percent of seeds, whatever a run has."""
    if unit == "run":
        return " / ".join(f"{_mean(each):g}" for each in values)
    return " / ".join(
        str(Spread(tuple(each)))
        if isinstance(each, list) and len(set(each)) > 1
        # The same of each seed, or known as a mean alone.
        else f"{_mean(each):.1f}"
        for each in values
    )


def _test(measurement: Measurement) -> str:
    """Returns each direction's p, interval over seeds, or both."""
    tests = []
    for each in measurement.differences():
        shown = [] if each.p is None else [f"{each.p:.2g}"]
        shown += ["{:+.1f} to {:+.1f}".format(*each.interval)] if each.interval else []
        tests.append(", ".join(shown))
    return " / ".join(tests) if any(tests) else ""


def _served(expects: Expectation, served: Measurement) -> str:
    values = list((served.figures or {}).values())[-1]
    test = _test(served)
    shown = f"{_text(values, served.unit)} ({test})" if test else _text(values, served.unit)
    return f"{shown}: {verdict(expects, served)}"


def _mean(figure: Figure) -> float:
    return fmean(figure) if isinstance(figure, list) else figure


def main() -> None:
    """Writes or checks the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    others = []
    for (page, marker), part in rendered(kept_record()).items():
        text = (ROOT / page).read_text(encoding="utf-8")
        if (new := with_part(text, marker, part)) != text:
            others.append(f"{page}, {marker}")
            if not is_check:
                (ROOT / page).write_text(new, encoding="utf-8")
    if others:
        print(f"{'not as rendered' if is_check else 'written'}: {'; '.join(others)}")
    sys.exit(1 if is_check and others else 0)


if __name__ == "__main__":
    main()
