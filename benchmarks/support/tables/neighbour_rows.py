"""Rows of tables that compare methods of reranking by neighbours: recalls, spread and tests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from statistics import fmean, stdev

from tandem.lab.evaluation.metrics import RECALL_AT, paired_p_value, recall_at

DIRECTIONS = ("i2t", "t2i")

Ranks = tuple[Sequence[list[int]], Sequence[list[int]]]
"""The rank of each query's best answer: of images and then of texts, each by seed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One method's ranks: of both directions, for each seed."""

    method: str
    setting: str
    ranks: Ranks
    picture_of_text: Sequence[int] | None = None
    """Texts of one picture count as one query in tests; None if each has its own."""

    def recalls(self) -> list[list[float]]:
        """R@1, R@5 and R@10 of i2t and then of t2i, in percent, each by seed."""
        return [
            [recall_at(seed, k).percent for seed in of_side]
            for of_side in self.ranks
            for k in RECALL_AT
        ]

    def recall_sums(self) -> list[float]:
        """The rSum of each seed."""
        return [sum(of_seed) for of_seed in zip(*self.recalls(), strict=True)]

    def hits(self, side: int) -> list[int]:
        """The first results that are right, summed over the seeds, by independent query."""
        of_query = [
            sum(rank == 1 for rank in ranks) for ranks in zip(*self.ranks[side], strict=True)
        ]
        if side == 0 or self.picture_of_text is None:
            return of_query
        of_picture = dict.fromkeys(sorted(set(self.picture_of_text)), 0)
        for picture, hits in zip(self.picture_of_text, of_query, strict=True):
            of_picture[picture] += hits
        return list(of_picture.values())

    def p_value(self, side: int, other: "Row") -> float:
        """Returns p of the paired test of R@1 against another row, by the means of their seeds."""
        own, others = len(self.ranks[side]), len(other.ranks[side])
        shared = gcd(own, others)
        return paired_p_value(
            [others // shared * each for each in self.hits(side)],
            [own // shared * each for each in other.hits(side)],
        )

    def gap(self, side: int, other: "Row") -> float:
        """Returns how many points of R@1 this row is above another."""
        place = side * len(RECALL_AT)
        return fmean(self.recalls()[place]) - fmean(other.recalls()[place])


def recall_lines(base: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Yields a table of recalls, each row with the p of its tests against the base."""
    header = " | ".join(f"{name} R@{k}" for name in DIRECTIONS for k in RECALL_AT)
    yield f"| method | setting | {header} | rSum | p i2t | p t2i |"
    yield "| --- | --- |" + " --- |" * 9
    for row in rows:
        cells = [spread(each) for each in (*row.recalls(), row.recall_sums())]
        for place in (0, len(RECALL_AT)):  # R@1, whose verdicts rest on each seed
            if len(by_seed := row.recalls()[place]) > 1:
                cells[place] += f" ({', '.join(f'{each:.1f}' for each in by_seed)})"
        tests = ["" if row is base else f"{row.p_value(side, base):.2g}" for side in (0, 1)]
        yield f"| {row.method} | {row.setting} | {' | '.join([*cells, *tests])} |"


def test_lines(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """Yields a table of one row against each other: points of R@1 and p."""
    yield f"{row.method} against each, R@1: difference in points and p"
    yield ""
    yield "| method | i2t | p | t2i | p |"
    yield "| --- |" + " --- |" * 4
    for other in others:
        cells = []
        for side in (0, 1):
            cells += [f"{row.gap(side, other):+.1f}", f"{row.p_value(side, other):.2g}"]
        yield f"| {other.method} | {' | '.join(cells)} |"


def spread(values: Sequence[float]) -> str:
    """Returns the mean, with the sample deviation of several values.

    >>> spread([1.0, 3.0]), spread([2.0])
    ('2.0 ± 1.4', '2.0')
    """
    deviation = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{fmean(values):.1f}{deviation}"


def pool_lines(base: Row, depths: Sequence[int] = (1, 2, 4, 8, 16, 32)) -> Iterator[str]:
    """Yields the base's headroom: R@1 of a flawless order of its first K items."""
    yield "| a flawless order of the first | i2t R@1 | t2i R@1 |"
    yield "| --- | --- | --- |"
    for depth in depths:
        cells = [f"{recall_at(of_side[0], depth).percent:.1f}" for of_side in base.ranks]
        yield f"| {depth} | {' | '.join(cells)} |"
