"""Samples a large grid of rows for `make test`; `make test-all` runs every row."""

from __future__ import annotations

import datetime
import math
import os
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

# One for all workers, which must collect the same rows: they inherit it from the process of pytest.
SEED = os.environ.setdefault("TANDEM_GRID_SEED", f"{datetime.datetime.now(datetime.UTC):%Y%m%d}")
IS_FULL = os.environ.get("TANDEM_GRID_RUNS") == "full"

_SHARE = 0.1

Row = TypeVar("Row")


def sampled(rows: Iterable[Row], *, fault: Callable[[Any], Hashable] | None = None) -> list[Row]:
    """Returns the first row of each fault and a tenth of the others by the seed, in their order.

    `fault` names a row's fault, such as the message that it causes; without it, all rows have one.
    """
    every = list(rows)
    if IS_FULL:
        return every
    firsts: dict[Hashable, int] = {}
    for number, row in enumerate(every):
        firsts.setdefault(fault(row) if fault else None, number)
    others = sorted(set(range(len(every))) - set(firsts.values()))
    drawn = random.Random(SEED).sample(others, math.ceil(_SHARE * len(others)))
    return [every[number] for number in sorted([*firsts.values(), *drawn])]


def drawn(choices: Sequence[Row], name: str) -> Sequence[Row]:
    """Returns one of the choices by the seed and the name, such as a test's; all in a full run."""
    return choices if IS_FULL else [random.Random(f"{SEED} {name}").choice(choices)]
