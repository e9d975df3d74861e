"""What the papers report for the same ways of ordering, on other pictures and with other models.

Joint+OSCAR's rows of Geigle et al. (TACL 2022), Tables 1, 8 and 9, and the times of its Table 4.
For orientation alone: photographs with five captions each and a pretrained model of 110 million
parameters say nothing of how well another model does on another corpus.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROWS = Path(__file__).with_name("published.csv")
_TIMES = Path(__file__).with_name("published_times.csv")


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One printed row, in percent."""

    order_by: str
    data_set: str
    direction: str
    recalls: tuple[float, float, float]
    """R@1, R@5 and R@10."""
    table: str
    note: str


def published_rows(order_by: str) -> Iterator[PublishedRow]:
    """Yields what was printed for that way of ordering; nothing where nothing was."""
    with _ROWS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["order_by"] == order_by:
                yield PublishedRow(
                    order_by,
                    row["data_set"],
                    row["direction"],
                    (float(row["R@1"]), float(row["R@5"]), float(row["R@10"])),
                    row["table"],
                    row["note"],
                )


@dataclass(frozen=True, slots=True)
class PublishedTime:
    """What a whole evaluation took on an NVIDIA V100, encoding included (Table 4)."""

    order_by: str
    data_set: str
    pair_count: int
    """Of both directions, for five captions a picture: worked out, not printed."""
    printed: str


def published_times(order_by: str) -> Iterator[PublishedTime]:
    """Yields what was printed for that way of ordering; nothing where nothing was."""
    with _TIMES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["order_by"] == order_by:
                pair_count = int(row["pair_count"])
                yield PublishedTime(order_by, row["data_set"], pair_count, row["printed"])
