"""Prints what a fault test saw as one line of JSON, and appends it to a file if one is named."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.faults.history import Finding, FindingKind

RESULTS_VARIABLE = "TANDEM_FAULT_RESULTS"


def report(
    test: str, start_time: float, findings: Iterable[Finding] = (), **figures: object
) -> None:
    """Prints the figures, the findings counted by kind, and the seconds since the start time.

    They are also appended to the file that TANDEM_FAULT_RESULTS names.
    """
    counts = Counter(fault.kind for fault in findings)
    line = json.dumps(
        {
            "test": test,
            **figures,
            **{kind.value: counts[kind] for kind in FindingKind},
            "seconds": round(time.monotonic() - start_time, 1),
        }
    )
    print(line)
    if path := os.environ.get(RESULTS_VARIABLE):
        with Path(path).open("a") as results:
            results.write(line + "\n")


def median(values: Sequence[float]) -> float:
    """Returns the median, rounded to milliseconds; 0 if there is none."""
    return percentile(values, 50)


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the percentile, rounded to tenths of a millisecond; 0 if there is none."""
    if not values:
        return 0.0
    return round(sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))], 4)
