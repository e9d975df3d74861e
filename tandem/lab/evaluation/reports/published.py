"""Reads the figures that Geigle et al. (TACL 2022) report for the same orders.

These are OSCAR's rows of Tables 1, 5, 8 and 9, M3P's of Table 2, and the times of Table 4, for one
model (Joint) and two (Sep). They are for orientation only: photographs with five captions each and
pretrained models of at least 110 million parameters are not comparable with another model on
another corpus.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_ROWS = Path(__file__).with_name("published.csv")
_LANGUAGES = Path(__file__).with_name("published_languages.csv")
_TIMES = Path(__file__).with_name("published_times.csv")


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """Holds the printed figures of one system on one data set, in percent."""

    order_by: str
    system: str
    """Joint or Sep."""
    data_set: str
    recalls: Mapping[str, tuple[float, float, float]]
    """R@1, R@5 and R@10, by direction."""
    table: str
    note: str


def published_rows(order_by: str, *, is_enlarged: bool) -> Iterator[PublishedRow]:
    """Yields the printed rows for that order; `is_enlarged` includes rows with distractors."""
    wanted = (row for row in _rows(_ROWS, order_by) if is_enlarged or row["setting"] != "enlarged")
    named = groupby(wanted, lambda row: (row["system"], row["data_set"], row["table"]))
    for (system, data_set, table), both in named:
        recalls, notes = {}, []
        for row in both:
            recalls[row["direction"]] = (float(row["R@1"]), float(row["R@5"]), float(row["R@10"]))
            if row["note"]:
                notes.append(f"{row['direction']} {row['note']}")
        yield PublishedRow(order_by, system, data_set, recalls, table, ", ".join(notes))


def published_languages(order_by: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields each system with its mR on Multi30k in percent (Table 2), by language.

    "mean" is the plain mean of the four.
    """
    for row in _rows(_LANGUAGES, order_by):
        system = row.pop("system")
        yield system, {name: float(value) for name, value in row.items() if name != "order_by"}


def published_times(order_by: str) -> Iterator[tuple[str, int, str]]:
    """Yields data set, pairs and the printed time of a whole evaluation on a V100 (Table 4).

    The pairs are of both directions with five captions per picture; computed, not printed.
    """
    for row in _rows(_TIMES, order_by):
        yield row["data_set"], int(row["pair_count"]), row["printed"]


def _rows(path: Path, order_by: str) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["order_by"] == order_by]
