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
    """Yields the printed rows for that order, if there are any.

    `is_enlarged` includes rows with distractors.
    """
    with _ROWS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["order_by"] == order_by]
    wanted = (row for row in rows if is_enlarged or row["setting"] != "enlarged")
    named = groupby(wanted, lambda row: (row["system"], row["data_set"], row["table"]))
    for (system, data_set, table), both in named:
        recalls, notes = {}, []
        for row in both:
            recalls[row["direction"]] = (float(row["R@1"]), float(row["R@5"]), float(row["R@10"]))
            if row["note"]:
                notes.append(f"{row['direction']} {row['note']}")
        yield PublishedRow(order_by, system, data_set, recalls, table, ", ".join(notes))


@dataclass(frozen=True, slots=True)
class PublishedLanguages:
    """Holds mR of one system on Multi30k, in percent (Table 2)."""

    order_by: str
    system: str
    mean_recalls: Mapping[str, float]
    """By language; "mean" is the plain mean of the four."""


def published_languages(order_by: str) -> Iterator[PublishedLanguages]:
    """Yields what was printed for that way of ordering; nothing where nothing was."""
    with _LANGUAGES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row.pop("order_by") == order_by:
                system = row.pop("system")
                means = {language: float(value) for language, value in row.items()}
                yield PublishedLanguages(order_by, system, means)


@dataclass(frozen=True, slots=True)
class PublishedTime:
    """Holds the time of a whole evaluation on an NVIDIA V100, including encoding (Table 4)."""

    order_by: str
    data_set: str
    pair_count: int
    """Pairs of both directions with five captions per picture; computed, not printed."""
    printed: str


def published_times(order_by: str) -> Iterator[PublishedTime]:
    """Yields what was printed for that way of ordering; nothing where nothing was."""
    with _TIMES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["order_by"] == order_by:
                pair_count = int(row["pair_count"])
                yield PublishedTime(order_by, row["data_set"], pair_count, row["printed"])
